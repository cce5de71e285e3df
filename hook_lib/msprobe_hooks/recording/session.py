"""A recording of this process: what observes is installed around a recorder and removed again."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import is_
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from msprobe_hooks.dump.tokens import PassTokens
from msprobe_hooks.errors import ConfigError, RecordingError, is_mistake
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.debug_saves import save
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.summary import Summary

#: What holds the modules to record: a module (a cell) of the framework, or a list or tuple of them.
Model: TypeAlias = Any


# Py_TPFLAGS_IMMUTABLETYPE: the attributes of such a class cannot be set.
_IMMUTABLE = 1 << 8


# Without owning them: a session that is never ended is collected as any other object.
_running: list[weakref.ref[Session]] = []


def running_session() -> Session | None:
    """Return the recording of this process that was started last and has not ended, None where there is none."""
    alive = (session for started in reversed(_running) if (session := started()) is not None)
    return next(alive, None)


class Observer(Protocol):
    """Observer that is on between ``begin`` and ``end``."""

    def begin(self) -> None:
        """Start observing."""

    def end(self) -> None:
        """Stop observing and leave everything as it was, also what began in part; a second time does nothing."""


class Hooks(Protocol):
    """Handle of the hooks that were put on modules."""

    def remove(self) -> None:
        """Take it off."""


@contextmanager
def observing(observers: Sequence[Observer]) -> Iterator[None]:
    """Begin observers in their order, and end them in the opposite one."""
    with ExitStack() as begun:
        for observer in observers:
            observer.begin()
            begun.callback(observer.end)
        yield


class Session(ABC):
    """A recording of this process: start, stop, step, close. Each framework has one.

    The observers are on while the session is, in their order, and are taken off in the opposite one.
    """

    module_class: ClassVar[type]
    #: How a user writes ``module_class``.
    module_name: ClassVar[str]

    def __init__(self, recorder: Recorder, observers: list[Observer], model: Model | None = None) -> None:
        self.recorder = recorder
        self._observers = observers
        self._custom: dict[tuple[int, str], Observer] = {}
        self._model = model
        self._hooks: list[Hooks] = []
        self._hooked: list[list[Any]] = []
        self._is_on = False
        self._is_wanted = False
        self._has_ended = False
        self._given_rank: int | None = None

    # what a framework says

    @abstractmethod
    def rank(self) -> int | None:
        """Return this process's rank, None where there is no process group."""

    @abstractmethod
    def hooks_on(self, model: Model) -> Hooks:
        """Register hooks on all modules inside a model."""

    @abstractmethod
    def custom_api(self, module: Any, api: str, qualified: str) -> Observer:
        """Return what records calls of ``module.api`` under the name ``qualified``."""

    def dump_module(self, module: Any, name: str) -> None:
        """Record only this module's calls, as ``Module.{name}.{Class}``, until ``end_module_dump``.

        Raises ConfigError where modules are recorded already, or the framework cannot do so.
        """
        raise self._not_offered("module_dump")

    def end_module_dump(self) -> None:
        """Take the module's hooks off and record calls again. Raises ConfigError as ``dump_module`` does."""
        raise self._not_offered("module_dump_end")

    # what is the same for all

    @property
    def model(self) -> Model | None:
        """Return what holds the modules that are recorded, None where there is none."""
        return self._model

    @property
    def settings(self) -> Settings:
        """Return what is recorded, and where."""
        return self.recorder.settings

    def record_into(self, dump_path: Path) -> None:
        """Record into another folder from the next start on, where call numbers restart.

        Raises ConfigError where the folder cannot be left.
        """
        self.recorder.record_into(dump_path)

    @property
    def summary(self) -> Summary:
        """Return what was recorded so far."""
        return self.recorder.summary

    def start(self, model: Model | None = None, rank: int | None = None) -> None:
        """Record from here on, where step and rank are wanted; ``rank`` is by default that of the process.

        Raises ConfigError where modules are to be recorded and there is no model, RecordingError where there is a dump
        of a former run or this recording has ended. Whatever else fails ends the recording and not the program.
        """
        try:
            self._start(model, rank)
        except Exception as error:
            if is_mistake(error):
                raise
            self.recorder.fail(error)

    def _start(self, model: Model | None, rank: int | None) -> None:
        if self._is_on:
            return
        if self._has_ended:
            raise RecordingError("this recording has ended and its files are complete; start a new recording")
        self._take_model(model)
        if weakref.ref(self) not in _running:
            _running.append(weakref.ref(self))
        self._is_wanted = True
        if rank is not None:
            self._given_rank = rank
        if not self.recorder.start(self.rank() if self._given_rank is None else self._given_rank):
            return
        self._hook_model()
        self._is_on = True
        self._begin_observers()

    def stop(self) -> None:
        """Pause; the files are complete, tensors included.

        What ran until now still gets its backward records, if its backward pass comes before ``step`` and the end.
        """
        self._is_wanted = False
        if self._is_on:
            self._is_on = False
            self._end_observers()
        self.recorder.stop()

    def step(self) -> None:
        """End a step. What comes is recorded into the next folder, after the next ``start`` where it was stopped."""
        was_wanted = self._is_wanted
        self.stop()
        self.recorder.next_step()
        if was_wanted:
            self.start()

    def close(self) -> Summary:
        """Finish, take the hooks off and return what was recorded."""
        self.stop()
        self._has_ended = True
        if weakref.ref(self) in _running:
            _running.remove(weakref.ref(self))
        for hooks in self._hooks:
            with self.recorder.net("the end of a recording"):
                hooks.remove()
        self._hooks.clear()
        return self.recorder.close()

    def save(self, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record a variable by name; level debug."""
        save(self.recorder, variable, name, save_backward)

    def note_tokens(
        self,
        requests: Sequence[object],
        lengths: Sequence[int],
        *,
        starts: Sequence[int] = (),
        token_ids: Sequence[int] = (),
        logprobs: Sequence[float | None] = (),
    ) -> None:
        """Note which tokens the next forward pass has, so that its rows can be compared with those of another run.

        To be called once for each forward pass; where nothing is recorded it does nothing.

        Args:
            requests: The names of the requests (sequences) in the order of the pass's rows.
            lengths: How many tokens of each request the pass has.
            starts: The position of the first of these in each request; by default they follow those of earlier passes.
            token_ids: The tokens of all requests, one after another.
            logprobs: The log probability that this run gave each of the tokens, None where it gave none.

        Raises:
            ConfigError: The numbers do not fit together.
        """
        lists = {"lengths": lengths, "starts": starts, "token_ids": token_ids, "logprobs": logprobs}
        try:
            # Tensors and arrays give plain numbers by the same method.
            plain = {
                name: list(getattr(values, "tolist", lambda values=values: values)()) for name, values in lists.items()
            }
            tokens = msgspec.convert({"requests": [str(one) for one in requests], **plain}, PassTokens)
            problem = tokens.problem()
        except (TypeError, msgspec.ValidationError) as error:
            problem = str(error)
        if problem:
            raise ConfigError("tokens", lists, "lists that fit together", problem=f"tokens: {problem}")
        self.recorder.note_tokens(tokens)

    def register_custom_api(self, module: Any, api: str, api_prefix: str | None = None) -> None:
        """Record calls of ``module.api`` too, as ``{prefix}.{api}``; the prefix is the module's name by default.

        Raises ConfigError where there is no such function, and where it is one of a built-in class: these cannot be
        replaced.
        """
        if not callable(getattr(module, api, None)):
            owner = getattr(module, "__name__", module)
            raise ConfigError("api", api, f"the name of a function of {owner!r}", known=dir(module))
        if isinstance(module, type) and module.__flags__ & _IMMUTABLE:
            raise ConfigError("api", api, f"a function that can be replaced, unlike those of {module.__name__!r}")
        self.restore_custom_api(module, api)
        qualified = f"{api_prefix or getattr(module, '__name__', 'Custom')}.{api}"
        custom = self._custom[id(module), api] = self.custom_api(module, api, qualified)
        self._observers.append(custom)
        if self._is_observing:
            self._begin(custom)

    def restore_custom_api(self, module: Any, api: str) -> None:
        """Undo ``register_custom_api``; does nothing where it was not done."""
        custom = self._custom.pop((id(module), api), None)
        if custom is not None:
            self._observers.remove(custom)
            if self._is_observing:
                self._end(custom)

    @property
    def _is_observing(self) -> bool:
        """Return whether the observers watch calls now."""
        return self._is_on

    def _begin_observers(self) -> None:
        for observer in self._observers:
            self._begin(observer)

    def _end_observers(self) -> None:
        for observer in reversed(self._observers):
            self._end(observer)

    def _begin(self, observer: Observer) -> None:
        with self.recorder.net(f"the start of {type(observer).__name__}"):
            try:
                observer.begin()
            except Exception:
                # What it has put in place until then does not stay.
                observer.end()
                raise

    def _end(self, observer: Observer) -> None:
        with self.recorder.net(f"the end of {type(observer).__name__}"):
            observer.end()

    def _take_model(self, argument: Model | None) -> None:
        """Keep the model that is given, else the one that is known. Raises ConfigError where it is none."""
        model = argument if argument is not None else self._model
        settings = self.recorder.settings
        if model is None:
            if settings.records_modules:
                allowed = f"a {self.module_name} or a list of them"
                raise ConfigError("model", None, allowed, problem=f"level {settings.level!r} needs model=: {allowed}")
            return
        models = self._parts(model)
        if not isinstance(models, (list, tuple)) or not all(isinstance(one, self.module_class) for one in models):
            raise ConfigError("model", model, f"a {self.module_name} or a list or tuple of them")
        self._model = model

    def _parts(self, model: Model) -> Any:
        return [model] if isinstance(model, self.module_class) else model

    def _hook_model(self) -> None:
        """Register hooks on the model, unless it has them: a program may give another model at each start."""
        if self._model is None:
            return
        parts = [*self._parts(self._model)]
        if any(len(hooked) == len(parts) and all(map(is_, hooked, parts)) for hooked in self._hooked):
            return
        self._hooked.append(parts)
        self._hook_new_model(self._model)

    def _hook_new_model(self, model: Model) -> None:
        if self.recorder.settings.records_modules:
            self._hooks.append(self.hooks_on(model))

    def _not_offered(self, what: str) -> ConfigError:
        return ConfigError("framework", self.recorder.framework, f"pytorch for {what}()")
