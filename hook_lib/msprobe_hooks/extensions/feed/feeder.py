"""Feeder of a running program's modules, whichever framework runs them, numbers of calls, and the outcome in words."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from msprobe_hooks.dump.names import plain_dtype, split_module
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import ConfigError, FeedError
from msprobe_hooks.extensions.feed.arguments import Arguments
from msprobe_hooks.extensions.feed.recorded_inputs import ModuleNames, RecordedInputs, Source, number_of, unwrapped
from msprobe_hooks.messages import counted, listed
from msprobe_hooks.recording.modules import FedFrom, forget, hand_over, positional_names, prefixed
from msprobe_hooks.recording.session import Model, running_session

_Call = tuple[tuple[Any, ...], dict[str, Any]]

_SHOWN = 6


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
        self._numbers = _CallNumbers()
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
        found: dict[str, Any] = {}
        for prefix, module in prefixed(models[0] if len(models) == 1 else models, "Module", self.named_modules):
            # What wraps a module has its path and comes first.
            found[unwrapped(split_module(f"{prefix}.forward.0").path)] = module
        for path, module in found.items():
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
        dtype, wanted = _plain(element.dtype), _plain(str(tensor.dtype))
        if dtype != wanted:
            if _kind(dtype) != _kind(wanted):
                raise FeedError(
                    f"{where} has the dtype {wanted} in this run and {dtype} in {inputs.home}; leave the module out, "
                    "or record it as this run calls it"
                )
            self.fed.converted[f"{where} from {dtype} to {wanted}"] += 1
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
            wanted = self._steps is None or step in self._steps
            wanted = wanted and (self._ranks is None or (rank or 0) in self._ranks)
            self._inputs = self._source.at(step, rank) if wanted else None
            if wanted and self._inputs is None:
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
    known = side == "input" and number.isdecimal() and int(number) < len(names)
    return f" ({names[int(number)]})" if known else ""


def _plain(dtype: str) -> str:
    return plain_dtype(dtype)


def _kind(dtype: str) -> str:
    return next((kind for kind in ("float", "complex") if kind in dtype), "integer")


@dataclass(slots=True)
class Fed:
    """Outcome of feeding.

    ``calls`` counts the fed calls by the module's path; ``kept`` says what the program kept of its own, and why, each
    with how often; ``converted`` counts tensors that had another dtype in the dump; ``differences`` has, by place, how
    far what was replaced lay from what replaced it, as a fraction of the greatest value; ``unmet`` are lines on the
    modules that were never fed, known at the end; ``source`` is the recording that the inputs came from.
    """

    source: str
    calls: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    converted: Counter[str] = field(default_factory=Counter)
    differences: dict[str, float] = field(default_factory=dict)
    unmet: list[str] = field(default_factory=list)
    own_step: int = 0

    def step(self) -> None:
        """End a step, where nothing records: calls are counted anew, and inputs come from the dump's next step."""
        self.own_step += 1

    def note_difference(self, where: str, difference: float) -> None:
        """Keep how far the tensor in a place lay from the one that replaced it, the greatest of all calls."""
        if difference > self.differences.get(where, 0.0):
            self.differences[where] = difference

    @property
    def is_partial(self) -> bool:
        """Return whether something was not fed."""
        return bool(self.kept or self.unmet or not self.calls)

    def __str__(self) -> str:
        calls = counted(self.calls.total(), "call")
        of = counted(len(self.calls), "module")
        lines = [f"fed {calls} of {of} from {self.source}" if self.calls else f"nothing was fed from {self.source}"]
        for words, notes in (("converted", self.converted), ("not fed", self.kept)):
            if notes:
                texts = (text if count == 1 else f"{text} ({count} times)" for text, count in notes.items())
                lines.append(f"{words}: {listed(texts, _SHOWN)}")
        if self.differences:
            first = next(iter(self.differences))
            worst = max(self.differences, key=self.differences.__getitem__)
            places = ", most ".join(
                f"{where} by {self.differences[where]:.1e}" for where in dict.fromkeys((first, worst))
            )
            tensors = counted(len(self.differences), "replaced tensor")
            lines.append(f"{tensors} differed from the recorded, first {places} of the greatest value")
        return "; ".join([*lines, *self.unmet])


class Checkpoint(NamedTuple):
    """A call of activation checkpointing, which makes the calls inside it again.

    ``owner`` is an object that lives until then, ``depth`` distinguishes several at once of one
    owner, ``backward_pass`` the passes that repeat it, where the framework shows them.
    """

    owner: Any
    depth: int = 0
    backward_pass: Hashable = None


@dataclass
class _Region:
    """The numbers of the calls of each module inside a checkpoint, and how many were made again in each pass."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    repeated: dict[tuple[Hashable, str], int] = field(default_factory=lambda: defaultdict(int))


class _CallNumbers:
    """Counts the calls of each module in a step, by its path."""

    def __init__(self) -> None:
        self._next: dict[str, int] = defaultdict(int)
        self._regions: WeakKeyDictionary[Any, dict[int, _Region]] = WeakKeyDictionary()

    def restart(self) -> None:
        """Count from 0 again, as in a new step; calls of the one before may still be made again."""
        self._next.clear()

    def first(self, path: str, checkpoint: Checkpoint | None) -> int:
        """Return the number of a call that is made for the first time, inside a checkpoint where one is given."""
        number = self._next[path]
        self._next[path] += 1
        if checkpoint is not None:
            regions = self._regions.setdefault(checkpoint.owner, {})
            region = regions.get(checkpoint.depth)
            if region is None or region.repeated:
                # What was made again is over: this is another call of the same owner.
                region = regions[checkpoint.depth] = _Region()
            region.numbers[path].append(number)
        return number

    def again(self, path: str, checkpoint: Checkpoint | None) -> int | None:
        """Return the number that a call had which is made again, None where it is not known."""
        region = None if checkpoint is None else self._regions.get(checkpoint.owner, {}).get(checkpoint.depth)
        if checkpoint is None or region is None or not region.numbers[path]:
            return None
        key = (checkpoint.backward_pass, path)
        place = region.repeated[key]
        region.repeated[key] += 1
        numbers = region.numbers[path]
        return numbers[place % len(numbers)]

    def latest(self, path: str) -> int:
        """Return the number of a module's latest call."""
        return max(0, self._next[path] - 1)
