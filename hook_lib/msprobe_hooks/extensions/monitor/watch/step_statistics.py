"""Statistics of a step: activations and their gradients, in and out of a model's modules; errors are reported once.

Hooks are on the modules of one model only, and nothing is put between the tensors: gradients are read off the autograd
graph, where what a module contributes to its input's gradient leaves it, as a full backward hook would show it.
"""

from __future__ import annotations

import logging
import math
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import FrameType
from typing import Any, ClassVar, Protocol, TypeAlias

from msprobe_hooks.extensions.monitor.series.writer import Row
from msprobe_hooks.extensions.monitor.watch.config import selected
from msprobe_hooks.recording.backward import BackwardPasses, Emit, Engine, Inputs, Listener, tensors_in
from msprobe_hooks.recording.interposition import uncopied
from msprobe_hooks.recording.safety_net import SafetyNet, report
from msprobe_hooks.recording.summary import described

#: Task, pipeline chunk, name and micro step: what has one row in a step.
Place: TypeAlias = "tuple[str, int, str, int | None]"
#: Numbers, or what the meter that gave them makes them of when they are fetched.
Values: TypeAlias = Any

#: What is asked of a module: some of ``input``, ``output``, ``input_grad``, ``output_grad``, each with the element that
#: is meant (``tensor`` or ``tuple[n]:i``), or None for every tensor.
Fields: TypeAlias = "Mapping[str, str | None]"
Named: TypeAlias = "list[tuple[str, Any]]"

_log = logging.getLogger("msprobe_hooks")


class Meter(Protocol):
    """Computation of statistics of a framework's tensors."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Their names."""

    def measure(self, tensors: Sequence[Any]) -> Sequence[Values]:
        """Return the statistics of each tensor, which may still be on a device. The caller is quiet."""

    def fetch(self, rows: Sequence[Values]) -> Sequence[tuple[float, ...]]:
        """Fetch statistics to the host."""

    def distribution(self, tensor: Any) -> Any:
        """Return how many elements are in each bin of a heat map, as a tensor or an array."""


class Collection:
    """The statistics of the step that runs, while ``is_on``; what is measured again replaces what was before.

    ``quiet`` is the context that hooks run in, which leaves no trace in the training; while ``is_hidden()``, as from a
    compiler, none of them runs. By what was measured, statistics that may still be on the device::

        _values    {("grad_unreduced", 0, "layer.weight", 1): <norm, max>}     task, chunk, name, micro step
        _repeated  {("other", "all_reduce/pre_0"): [<norm, max>, <norm, max>]}     each time in this step
    """

    def __init__(
        self,
        meter: Meter,
        quiet: Callable[[], AbstractContextManager[object]],
        is_hidden: Callable[[], bool] = lambda: False,
    ) -> None:
        self.meter = meter
        self._quiet = quiet
        self._is_hidden = is_hidden
        self.is_on = False
        self.errors = Errors()
        self._values: dict[Place, Values] = {}
        self._repeated: dict[tuple[str, str], list[Values]] = {}
        self._distributions: dict[Place, Any] = {}

    def measure(
        self, task: str, chunk: int, names: Sequence[str], tensors: Sequence[Any], micro_step: int | None = None
    ) -> None:
        """Measure tensors where they are. The caller is quiet."""
        for name, values in zip(names, self.meter.measure(tensors), strict=True):
            place = (task, chunk, name, micro_step)
            self._values.pop(place, None)
            self._values[place] = values

    def distribute(self, task: str, chunk: int, name: str, tensor: Any) -> None:
        """Count how the elements of a tensor that was measured are distributed, for the pictures of events."""
        self._distributions[task, chunk, name, None] = self.meter.distribution(tensor)

    def measure_again(self, task: str, names: Sequence[str], tensors: Sequence[Any]) -> None:
        """Measure tensors that come several times in a step, whose statistics are combined at its end."""
        for name, values in zip(names, self.meter.measure(tensors), strict=True):
            self._repeated.setdefault((task, name), []).append(values)

    @property
    def has_rows(self) -> bool:
        """Return whether the step has brought anything."""
        return bool(self._values or self._repeated)

    def take(self, step: int) -> list[Row]:
        """Return the rows of the step and forget them."""
        rows = self.look(step)
        self._values = {}
        self._repeated = {}
        self._distributions = {}
        return rows

    def look(self, step: int) -> list[Row]:
        """Return the rows that the step has brought so far."""
        numbers = self.meter.fetch(list(self._values.values()))
        counts = {place: tuple(counted.tolist()) for place, counted in self._distributions.items()}
        rows = [
            Row(task, chunk, name, step, micro_step, values, counts.get((task, chunk, name, micro_step), ()))
            for (task, chunk, name, micro_step), values in zip(self._values, numbers, strict=True)
        ]
        for (task, name), repeated in self._repeated.items():
            columns = zip(self.meter.statistics, zip(*self.meter.fetch(repeated), strict=True), strict=True)
            rows.append(Row(task, 0, name, step, None, tuple(combined(*column) for column in columns)))
        return rows

    @property
    def is_watching(self) -> bool:
        """Return whether hooks measure what runs now."""
        return self.is_on and not self._is_hidden()

    def run(self, where: str, hook: Callable[..., None], *args: Any) -> None:
        """Call a hook as `harmless` does."""
        if self.is_watching:
            try:
                with self._quiet():
                    hook(*args)
            except Exception as error:
                report(error, partial(self.errors.note, where))

    def harmless(self, where: str, hook: Callable[..., None]) -> Callable[..., None]:
        """Return a hook that does nothing in steps that are not collected, is not seen, and never raises.

        What goes wrong is in ``errors``.
        """
        return partial(self.run, where, hook)


def combined(statistic: str, values: Sequence[float]) -> float:
    """Return what several tensors have together, as msprobe does: extrema, sums of norms and of counts, else means."""
    if any(map(math.isnan, values)):
        return math.nan
    if statistic in ("min", "max"):
        return (min if statistic == "min" else max)(values)
    return sum(values) if statistic in ("norm", "nans") else sum(values) / len(values)


class Modules(ABC):
    """The hooks on the modules of a chunk of the model, given as name, module, and the fields wanted of it."""

    tensor_class: ClassVar[type]
    engine: ClassVar[Engine]

    def __init__(
        self, collection: Collection, chunk: int, model: Any, modules: Sequence[tuple[str, Any, Fields]]
    ) -> None:
        self._collection = collection
        self._chunk = chunk
        self._micro_batches = 0
        self._running: list[Call] = []
        self._calls: dict[str, list[tuple[int, int]]] = {}
        self._recomputed: Counter[str] = Counter()
        self._no_inputs = self.inputs(())
        # A call is finished when the backward pass that has reached it ends, whatever of it has come by then.
        self._passes = BackwardPasses(self.engine)
        self.listener = Listener(self._passes.at_end, _ignored, collection.errors.note)
        count = collection.harmless("the model", self._begin_micro_batch)
        self._handles: list[Any] = []
        # A scripted module takes no hooks.
        with collection.errors.kept_from("the model"):
            self._handles.append(model.register_forward_pre_hook(uncopied(count)))
        for name, module, fields in modules:
            with collection.errors.kept_from(f"module {name!r}"):
                self._install(name, module, fields)

    @abstractmethod
    def takes_gradient(self, tensor: Any) -> bool:
        """Return whether a backward pass can give a tensor a gradient."""

    @abstractmethod
    def inputs(self, tensors: Sequence[Any]) -> Inputs:
        """Return where gradients leave a call that is given these tensors, each of which takes a gradient."""

    @abstractmethod
    def watch(self, outputs: list[Any], inputs: Any, emit: Emit, where: str) -> None:
        """Arrange for ``emit(gradients of outputs, gradients of inputs)`` when a backward pass goes through a call.

        ``where`` is what the gradients are named when they cannot be taken.
        """

    def is_recomputed(self, frame: FrameType) -> bool:
        """Return whether a call is one that is made again during the backward pass; here there are none."""
        return False

    def remove(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def end_step(self) -> None:
        """Begin to count micro batches and calls anew."""
        self._micro_batches = 0
        self._running.clear()
        self._calls.clear()
        self._recomputed.clear()
        self._passes.forget()

    def _install(self, name: str, module: Any, fields: Fields) -> None:
        where = f"module {name!r}"
        begin = self._collection.harmless(where, partial(self._begin, name, fields))
        end = self._collection.harmless(where, partial(self._end, fields))
        self._handles += [
            module.register_forward_pre_hook(uncopied(begin), with_kwargs=True),
            module.register_forward_hook(uncopied(end), with_kwargs=True),
        ]

    def _begin_micro_batch(self, model: Any, _: object) -> None:
        if model.training and not self.is_recomputed(sys._getframe()):
            self._micro_batches += 1

    def _begin(self, name: str, fields: Fields, module: Any, args: Any, kwargs: Any) -> None:
        if not module.training:
            return
        is_again = self.is_recomputed(sys._getframe())
        call = Call(module, *self._numbered(name, is_again), is_again, self._no_inputs)
        measures = "input" in fields and not is_again
        named = self._chosen("input", args, kwargs, fields["input"]) if measures else None
        if named is not None:
            self._measure("actv", call, named)
        if "input_grad" in fields:
            if named is None or fields["input_grad"] != fields["input"]:
                named = self._chosen("input", args, kwargs, fields["input_grad"])
            names_by_id = {id(tensor): name for name, tensor in named}
            # All of them, wanted or not: the graph of the call ends where any of its inputs comes from.
            inputs: list[Any] = tensors_in((args, kwargs), self.tensor_class)
            tensors = [tensor for tensor in inputs if self.takes_gradient(tensor)]
            call.inputs = self.inputs(tensors)
            call.input_names = [names_by_id.get(id(tensor)) for tensor in tensors]
        self._running.append(call)

    def _end(self, fields: Fields, module: Any, _args: Any, _kwargs: Any, output: Any) -> None:
        # A module that is evaluated inside of one that is trained, as a frozen normalization, was not begun.
        call = self._ended(module) if module.training else None
        if call is None:
            return
        values, keywords = _arguments(output)
        measures = "output" in fields and not call.is_again
        named = self._chosen("output", values, keywords, fields["output"]) if measures else None
        if named is not None:
            self._measure("actv", call, named)
        if "output_grad" in fields or call.inputs.count:
            spec = fields.get("output_grad")
            if named is None or spec != fields["output"]:
                named = self._chosen("output", values, keywords, spec)
            outputs = [one for one in named if self.takes_gradient(one[1])]
            self._watch_backward(call, outputs, is_wanted="output_grad" in fields)

    def _watch_backward(self, call: Call, outputs: Named, *, is_wanted: bool) -> None:
        if not outputs:
            return
        names = [name if is_wanted else None for name, _ in outputs]
        where = f"the gradients of module {call.name!r}"
        emit = partial(self._collection.run, where, self._emit, call, [*names, *call.input_names])
        self.watch([tensor for _, tensor in outputs], call.inputs, emit, where)

    def _emit(self, call: Call, names: list[str | None], grad_outputs: list[Any], grad_inputs: list[Any]) -> None:
        gradients = zip(names, [*grad_outputs, *grad_inputs], strict=True)
        self._measure("actv_grad", call, [(name, one) for name, one in gradients if name and one is not None])

    def _measure(self, task: str, call: Call, named: Named) -> None:
        names = [f"{call.name}.{name}" for name, _ in named]
        self._collection.measure(task, self._chunk, names, [tensor for _, tensor in named], call.micro_step)

    def _numbered(self, name: str, is_again: bool) -> tuple[str, int]:
        """Return how a call is named, and its micro batch; a recomputation is the forward call that it repeats."""
        calls = self._calls.setdefault(name, [])
        if is_again and self._recomputed[name] < len(calls):
            micro_step, number = calls[self._recomputed[name]]
            self._recomputed[name] += 1
        else:
            # Where parts of a model are called by themselves, each call begins a micro batch of its own.
            micro_step = self._micro_batches - 1 if self._micro_batches else len(calls)
            number = calls[-1][1] + 1 if calls and calls[-1][0] == micro_step else 0
            calls.append((micro_step, number))
        return (f"{name}[{number}]" if number else name), micro_step

    def _chosen(self, side: str, values: Sequence[Any], keywords: Mapping[str, Any], spec: str | None) -> Named:
        return chosen(side, values, keywords, spec, self.tensor_class)

    def _ended(self, module: Any) -> Call | None:
        # Calls above it never returned: they raised.
        while self._running:
            call = self._running.pop()
            if call.module is module:
                return call
        return None


class Call:
    """A module call that runs: its name, its micro batch, whether it is made again, and where gradients leave it."""

    __slots__ = ("input_names", "inputs", "is_again", "micro_step", "module", "name")

    def __init__(self, module: Any, name: str, micro_step: int, is_again: bool, inputs: Inputs) -> None:
        self.module = module
        self.name = name
        self.micro_step = micro_step
        self.is_again = is_again
        self.inputs = inputs
        self.input_names: Sequence[str | None] = ()


def chosen(
    side: str, values: Sequence[Any], keywords: Mapping[str, Any], spec: str | None, tensor_class: type
) -> Named:
    """Return the tensors of a module's input or output that are wanted, with their names.

    The side alone names a tensor that is chosen, or that can only be alone; else its place comes after it:
    ``output_0``, ``input_mask``. Raises ValueError where the element that is chosen is not there.
    """
    if spec is not None:
        return [(side, _element(side, values, spec, tensor_class))]
    if len(values) == 1 and not keywords and isinstance(values[0], tensor_class):
        return [(side, values[0])]
    return [*_numbered(side, [*enumerate(values), *keywords.items()], tensor_class)]


def _element(side: str, values: Sequence[Any], spec: str, tensor_class: type) -> Any:
    place = selected(spec)
    if place is None:
        element = next(iter(tensors_in(values, tensor_class)), None)
    else:
        length, index = place
        element = values[index] if len(values) == length else None
    if not isinstance(element, tensor_class):
        raise ValueError(f"its {side} has {len(values)} elements, but targets requests {spec}")
    return element


def _numbered(name: str, items: Sequence[tuple[Any, Any]], tensor_class: type) -> Iterator[tuple[str, Any]]:
    for place, value in items:
        if isinstance(value, tensor_class):
            yield f"{name}_{place}", value
        elif isinstance(value, (tuple, list)):
            yield from _numbered(f"{name}_{place}", list(enumerate(value)), tensor_class)
        elif isinstance(value, Mapping):
            yield from _numbered(f"{name}_{place}", list(value.items()), tensor_class)


def _arguments(output: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(output, Mapping):
        return (), output
    return (output if isinstance(output, (tuple, list)) else (output,)), {}


def _ignored() -> None:
    """Do nothing where a further backward pass goes through a call: the first is reported."""


class Errors(Counter[str]):
    """Number of failures of monitoring, by what could not be monitored."""

    def note(self, where: str, error: BaseException) -> None:
        """Count what went wrong, and log it the first time."""
        self[where] += 1
        if self[where] == 1:
            _log.warning("not monitored: %s: %s", where, described(error))

    def kept_from(self, where: str) -> SafetyNet:
        """Return a context, to be entered any number of times, that exceptions do not leave: they are noted."""
        return SafetyNet(self.note, where)

    def log_counts(self) -> None:
        """Report how often each came."""
        for where, count in self.items():
            _log.warning("not monitored (%d x): %s", count, where)
