"""Feeder of a running program's modules, whichever framework runs them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar

from msprobe_hooks.dump.names import split_module
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import ConfigError, FeedError
from msprobe_hooks.extensions.feed.arguments import Arguments
from msprobe_hooks.extensions.feed.call_numbers import CallNumbers, Checkpoint
from msprobe_hooks.extensions.feed.fed import Fed
from msprobe_hooks.extensions.feed.recorded_inputs import ModuleNames, RecordedInputs, Source, number_of, unwrapped
from msprobe_hooks.messages import listed
from msprobe_hooks.recording.fed_inputs import FedFrom, forget, hand_over
from msprobe_hooks.recording.modules import positional_names, prefixed
from msprobe_hooks.recording.session import Model, running_session

_Call = tuple[tuple[Any, ...], dict[str, Any]]


class Feeder(ABC):
    """Gives each named module its recorded inputs between ``begin`` and ``end``.

    Args:
        path: The recording.
        names: The modules.
        model: What holds them; where it is None, a framework may find it.
        step: The step whose inputs are fed whatever step runs, None for that which runs.
        rank: The rank whose inputs are fed, None for that of this process.
        steps: The steps in which modules are fed, None for all.
        ranks: The ranks in which modules are fed, None for all.
        step_that_runs: Returns the number of the step that runs; by default the running recording's, else that which
            ``Fed.step`` counts.
    """

    #: The frameworks whose dumps are fed, the own one first.
    frameworks: ClassVar[tuple[str, ...]]
    tensor_class: ClassVar[type]
    module_class: ClassVar[type]
    #: How a user writes ``module_class``.
    module_name: ClassVar[str]

    def __init__(
        self,
        path: Path,
        names: ModuleNames,
        model: Model | None,
        *,
        step: int | None = None,
        rank: int | None = None,
        steps: Collection[int] | None = None,
        ranks: Collection[int] | None = None,
        step_that_runs: Callable[[], int] | None = None,
    ) -> None:
        self.fed = Fed(str(path))
        self._source = Source(path, names, self.frameworks, step, rank)
        self._names = names
        self._steps, self._ranks = steps, ranks
        self._step_that_runs = step_that_runs or self._own_step
        self.model = model
        self._numbers = CallNumbers()
        self._lock = threading.RLock()
        self._place: tuple[int, int | None] | None = None
        self._inputs: RecordedInputs | None = None
        self._ran = set[str]()
        self._modules: dict[str, Any] = {}
        self._handles: list[Any] = []
        self._require_named()

    # what a framework says

    @abstractmethod
    def rank(self) -> int | None:
        """Return this process's rank, None where there is only one process."""

    @abstractmethod
    def checkpoint(self) -> tuple[Checkpoint | None, bool]:
        """Return the activation checkpoint that this call is made in, and whether it is made again."""

    @abstractmethod
    def named_modules(self, model: Any) -> Iterable[tuple[str, Any]]:
        """Yield the path and the module of everything inside a model."""

    @abstractmethod
    def hook(self, module: Any, give: Callable[[Any, Any, Any], _Call | None]) -> Any:
        """Call ``give`` with a module and its arguments before any other hook; return what ends it."""

    @abstractmethod
    def recorded(self, tensor: Any, element: TensorElement, folder: Path) -> Any:
        """Return the recorded tensor with dtype, device and place in the autograd graph of the program's.

        Raises FeedError where they do not fit, DumpError where the file cannot be read, KeptError where the program's
        is kept.
        """

    @abstractmethod
    def difference(self, tensor: Any, fed: Any) -> float:
        """Return the greatest difference of the program's tensor from what replaces it, divided by its greatest value.

        Infinite where only one of two elements is finite, 0 where both are equal.
        """

    @abstractmethod
    def quiet(self) -> AbstractContextManager[object]:
        """Return a context in which no call is recorded."""

    @abstractmethod
    def is_hidden(self) -> bool:
        """Return whether a compiler looks at the calls that are made now."""

    # life

    def begin(self) -> None:
        """Register hooks on the modules of the model. Raises ConfigError where it is none."""
        if self.model is None:
            self.find_model()
        else:
            self.hook_model(self.model)

    def find_model(self) -> None:
        """Find the model when it runs. Raises ConfigError where the framework does not show it."""
        raise ConfigError("model", None, f"a {self.module_name} or a list of them")

    def end(self) -> None:
        """Take the hooks off, and note what was not fed; a second time does nothing more."""
        forget()
        handles, self._handles = self._handles, []
        self._modules.clear()
        for handle in handles:
            handle.remove()
        self.fed.unmet = self._unmet()

    def hook_model(self, model: Model) -> None:
        """Register hooks on the named modules inside a model. Raises ConfigError where it is none."""
        models = [model] if isinstance(model, self.module_class) else model
        if not isinstance(models, (list, tuple)) or not all(isinstance(one, self.module_class) for one in models):
            raise ConfigError("model", model, f"a {self.module_name} or a list or tuple of them")
        modules: dict[str, Any] = {}
        for prefix, module in prefixed(models[0] if len(models) == 1 else models, "Module", self.named_modules):
            # What wraps a module has its path and comes first.
            modules[unwrapped(split_module(f"{prefix}.forward.0").path)] = module
        for path, module in modules.items():
            if self._names.name(path, type(module).__name__):
                self._hook(path, module)

    def keep(self, handle: Any) -> None:
        """Take what ends a hook, for the end."""
        self._handles.append(handle)

    def _hook(self, path: str, module: Any) -> None:
        if path in self._modules:
            self.fed.kept[f"{path} of a second model; pass the model that is meant as model="] += 1
            return
        self._modules[path] = module

        def give(module: Any, args: Any, kwargs: Any) -> _Call | None:
            return None if self.is_hidden() else self._give(path, module, args, kwargs)

        self.keep(self.hook(module, give))

    # one call

    def _give(self, path: str, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
        with self._lock:
            self._ran.add(path)
            inputs = self._current_inputs()
            number = self._number(path)
        if inputs is None:
            return None
        record = inputs.record(path, number)
        if record is None:
            count = inputs.count(path)
            if number >= count:
                self.fed.kept[f"calls of {path} after the {count} that were recorded"] += 1
            return None
        self._names.note_run(path, split_module(record.name).class_name, number_of(record.name))

        def replace(tensor: Any, element: TensorElement, place: str) -> Any:
            return self._recorded(tensor, element, f"{path} {place}{_named(names, place)}", inputs)

        names = positional_names(module, self.call_method)
        arguments = Arguments(path, self.tensor_class, replace, self.fed.kept)
        with self.quiet():
            call = arguments.fed(args, kwargs, record, names)
        if arguments.places:
            self.fed.calls[path] += 1
            source = str(inputs.home.absolute())
            hand_over(module, FedFrom(source, record.name, tuple(arguments.places), args, kwargs))
        return call

    #: The method of a module whose parameters name its arguments.
    call_method: ClassVar[str]

    def _recorded(self, tensor: Any, element: TensorElement, where: str, inputs: RecordedInputs) -> Any:
        shape = tuple(tensor.shape)
        if shape != element.shape:
            raise FeedError(
                f"{where} has the shape {shape} in this run and {element.shape} in {inputs.home}; feed a run of the "
                "same batch, or pass step= or rank= of the dump that fits"
            )
        dtype, own_dtype = _plain(element.dtype), _plain(str(tensor.dtype))
        if dtype != own_dtype:
            if _kind(dtype) != _kind(own_dtype):
                raise FeedError(
                    f"{where} has the dtype {own_dtype} in this run and {dtype} in {inputs.home}; "
                    "leave the module out, or record it as this run calls it"
                )
            self.fed.converted[f"{where} from {dtype} to {own_dtype}"] += 1
        fed = self.recorded(tensor, element, inputs.dump.tensor_folder)
        self.fed.note_difference(where, self.difference(tensor, fed))
        return fed

    def _number(self, path: str) -> int:
        checkpoint, is_again = self.checkpoint()
        if is_again:
            number = self._numbers.again(path, checkpoint)
            return self._numbers.latest(path) if number is None else number
        return self._numbers.first(path, checkpoint)

    def _current_inputs(self) -> RecordedInputs | None:
        """Return the inputs for the step and rank that run now; where they are others than before, count anew."""
        place = step, rank = self._step_that_runs(), self.rank()
        if place != self._place:
            self._place = place
            self._numbers.restart()
            is_selected = self._steps is None or step in self._steps
            is_selected = is_selected and (self._ranks is None or (rank or 0) in self._ranks)
            self._inputs = self._source.at(step, rank) if is_selected else None
            if is_selected and self._inputs is None:
                where = f"step {step}" if rank is None else f"step {step} of rank {rank}"
                self.fed.kept[f"{where}, as {self._source.path} has {self._source.described()}"] += 1
        return self._inputs

    def _own_step(self) -> int:
        session = running_session()
        return self.fed.own_step if session is None else session.recorder.step

    # what was missed

    def _require_named(self) -> None:
        """Raise ConfigError where no call of any named module was recorded."""
        first = self._source.first
        if first.named_paths:
            return
        name = self._names.unmet[0]
        near = self._names.closest(name, first.paths)
        hint = f"; did you mean {near!r}?" if near else f"; it has {listed(first.paths)}"
        raise ConfigError("modules", name, "", problem=f"modules: no call of {name!r} in {first.home}{hint}")

    def _unmet(self) -> list[str]:
        lines = []
        first = self._source.first
        for name in self._names.unmet:
            near = self._names.closest(name, first.paths)
            hint = f"; did you mean {near!r}?" if near else ""
            lines.append(f"{name} is not in {first.home}{hint}")
        never = sorted(first.named_paths - self._ran)
        if never:
            hint = "" if self._ran or self.model is not None else "; pass the model as model="
            lines.append(f"never ran, or only in compiled code: {listed(never)}{hint}")
        lines += [f"the call {name} did not run" for name in self._names.calls_not_run if not never]
        return lines


def _named(names: list[str], place: str) -> str:
    """Return the name of a positional argument, in brackets, empty where it is not known."""
    side, _, rest = place.partition(".")
    number = rest.partition(".")[0]
    is_named = side == "input" and number.isdecimal() and int(number) < len(names)
    return f" ({names[int(number)]})" if is_named else ""


def _plain(dtype: str) -> str:
    from msprobe_hooks.dump.tensor_files.dtypes import plain_dtype

    return plain_dtype(dtype)


def _kind(dtype: str) -> str:
    return next((kind for kind in ("float", "complex") if kind in dtype), "integer")
