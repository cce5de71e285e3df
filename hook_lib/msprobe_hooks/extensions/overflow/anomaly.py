"""Anomalies of one record: inf or nan that came in, went out, or both, and excessive growth; rules of what is expected.

Scenes and levels are those of msprobe's rule engine, the first that fits wins. Three things differ, because they are
facts about the values: a mean that overflowed over finite extrema is not an anomaly of the tensor, an infinite number
given as an argument (``masked_fill(mask, -inf)``) is an input like any other, and a gradient of a call that gave or
was given inf or nan is not where they arise, whatever gradients arrive (a loss's first is 1).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, TypeAlias

from msprobe_hooks.dump.effects import effects_of_record
from msprobe_hooks.dump.names import direction_of, forward_of, is_module_name, is_parameters_grad, parse_api_name
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.schema import Elements, ForwardRecord, Leaf, TensorElement, ValueElement, record_path, walk
from msprobe_hooks.errors import RecordError

Level = Literal["critical", "high", "medium"]

#: From the gravest down.
LEVELS: tuple[Level, ...] = ("critical", "high", "medium")

#: How many times larger than the largest input norm an output norm may be: that of msprobe's overflow check.
JUMP = 100.0


class AnomalyKind(Enum):
    """Kind of fault of a record; the value is the level and what the user reads."""

    ARISES = ("critical", "inf or nan in the output and none in the input")
    PASSES_ON = ("high", "inf or nan in the input and in the output")
    VANISHES = ("medium", "inf or nan in the input and none in the output")
    JUMPS = ("high", f"an output's norm is more than {JUMP:.0f} times the largest input's")
    COMES_IN = ("critical", "inf or nan comes in with an input, and no call that was recorded before returned any")
    NAN_OF_INF = ("critical", "nan in the output, of inf in the input")
    OVERWRITTEN = ("critical", "inf or nan in an input that was overwritten outside of recorded calls")

    @property
    def level(self) -> Level:
        """Return how grave it is."""
        level: Level = self.value[0]
        return level

    @property
    def words(self) -> str:
        """Return what it is, in words."""
        return self.value[1]


@dataclass(frozen=True, slots=True)
class ValuePath:
    """A recorded value and where it is: ``input.0``, ``kwargs.mask``, ``parameters.weight``, ``output.1.0``."""

    path: str
    leaf: Leaf

    @property
    def side(self) -> str:
        """``input``, ``kwargs``, ``parameters`` or ``output``."""
        return self.path.partition(".")[0]

    @property
    def position(self) -> str:
        """The index or name among the values of its side."""
        return self.path.split(".")[1]


@dataclass(frozen=True, slots=True)
class RecordIO:
    """All tensors and numbers that a record shows: what came in and what went out.

    ``forward`` is what a backward record's own call gave, or else was given, that holds inf or nan: its gradients are
    then taken at no finite point. ``overwritten`` are the paths of inputs that something wrote to since they were
    measured. Masks are written as -inf, so an input that holds nothing else is none of these.
    """

    name: str
    inputs: tuple[ValuePath, ...]
    outputs: tuple[ValuePath, ...]
    forward: tuple[ValuePath, ...] = ()
    overwritten: frozenset[str] = frozenset()

    @property
    def has_statistics(self) -> bool:
        """Return whether any tensor's extrema were recorded, or there is no tensor."""
        tensors = [place.leaf for place in (*self.inputs, *self.outputs) if isinstance(place.leaf, TensorElement)]
        return not tensors or any(tensor.max is not None or tensor.min is not None for tensor in tensors)


@dataclass(frozen=True, slots=True)
class Finding:
    """A scene, with the values that show it. ``growth`` is the ratio of norms where that is the scene."""

    scene: AnomalyKind
    inputs: tuple[ValuePath, ...]
    outputs: tuple[ValuePath, ...]
    growth: float | None = None


def is_judgeable(name: str) -> bool:
    """Return whether a record has inputs and outputs: gradients of a module's parameters have no direction."""
    return not is_parameters_grad(name)


def api_of(name: str) -> str:
    """Return ``Type.api`` of an API record, or the whole name where it follows no grammar."""
    try:
        return parse_api_name(name).qualified_api
    except ValueError:
        return name


_NON_FINITE_SPELLINGS = (b"NaN", b"Infinity", b'"nan', b'"inf', b'"-inf')


def may_hold_non_finite(raw: bytes) -> bool:
    """Return whether an undecoded record could show inf or nan; decoding is a hundred times slower."""
    return any(spelling in raw for spelling in _NON_FINITE_SPELLINGS)


def read_record_io(dump: Dump, name: str) -> RecordIO:
    """Decode what a record shows. Raises RecordError where it is malformed."""
    if _is_backward(name):
        backward = dump.backward(name)
        return RecordIO(
            name,
            tuple(_places(backward.grad_outputs, "input")),
            tuple(_places(backward.grad_inputs, "output")),
            tuple(_anomalous_around(dump, forward_of(name))),
        )
    forward = dump.forward(name)
    outputs = tuple(_places(forward.output, "output"))
    return RecordIO(name, tuple(_inputs(forward)), outputs, overwritten=forward.overwritten)


def _inputs(forward: ForwardRecord, prefix: str = "") -> Iterator[ValuePath]:
    yield from _places(forward.args, f"{prefix}input")
    yield from _places(forward.kwargs, f"{prefix}kwargs")
    yield from _places(forward.parameters, f"{prefix}parameters")


def _anomalous_around(dump: Dump, forward: str) -> Iterator[ValuePath]:
    raw = dump.records.get(forward)
    if raw is None or not may_hold_non_finite(bytes(raw)):
        return
    # A forward record that is malformed is reported as an item of its own.
    with suppress(RecordError):
        record = dump.forward(forward)
        gave = [place for place in _places(record.output, "forward.output") if is_anomalous(place.leaf)]
        yield from gave or (place for place in _inputs(record, "forward.") if is_anomalous(place.leaf, but=-math.inf))


def _is_backward(name: str) -> bool:
    if not is_module_name(name):
        try:
            parse_api_name(name)
        except ValueError as error:
            raise RecordError(record_path(name), str(error)) from None
    return direction_of(name) == "backward"


def find_scene(traffic: RecordIO) -> Finding | None:
    """Return what a record shows, before any rule that ignores it; None where nothing is wrong.

    What the call overwrites without reading it is no source of what it gives.
    """
    effects = effects_of_record(traffic.name)
    inputs = tuple(place for place in traffic.inputs if is_anomalous(place.leaf))
    outputs = tuple(place for place in traffic.outputs if is_anomalous(place.leaf))
    read = tuple(place for place in inputs if not effects.is_unread(place.position))
    if outputs:
        if read and all(place.path in traffic.overwritten for place in read):
            return Finding(AnomalyKind.OVERWRITTEN, read, outputs)
        sources = read or traffic.forward
        return Finding(AnomalyKind.PASSES_ON if sources else AnomalyKind.ARISES, sources, outputs)
    if inputs:
        return Finding(AnomalyKind.VANISHES, read or inputs, ())
    before = [place for place in traffic.inputs if not effects.is_unread(place.position)]
    after = [place for place in traffic.outputs if not effects.is_undefined(place.position)]
    return _jump(before, after)


class NumbersSoFar:
    """The kinds of numbers that the calls of one rank have given so far: NaN, or infinite numbers other than -inf.

    From it follows which call is the first to give NaN of infinite numbers that may be meant, and which is the first to
    be given a NaN that none of them made. An infinite number alone may be meant: it counts in what requires a gradient,
    -inf, of which masks are made, nowhere.
    """

    def __init__(self) -> None:
        self._nan = False
        self._inf = False
        self._has_begun = False

    def note(self, traffic: RecordIO, *, begins: bool = False) -> None:
        """Note what a call gave; one that gives nothing, as an assignment does, may have written its inputs.

        ``begins`` says whether inf or nan begin in it.
        """
        self._has_begun |= begins
        effects = effects_of_record(traffic.name)
        if effects.carries and traffic.outputs:
            # What only looks at memory, which may be undefined, gives nothing of its own.
            return
        leaves = [place.leaf for place in traffic.outputs if not effects.is_undefined(place.position)]
        leaves = leaves or [place.leaf for place in traffic.inputs]
        self._nan |= any(map(_is_nan, leaves))
        self._inf |= any(map(_is_no_mask, leaves))

    def note_unknown(self) -> None:
        """Note that a call may have given, or written, what is not recorded."""
        self._nan = self._inf = True

    @property
    def are_unknown(self) -> bool:
        """Return whether nothing can be known any more to have been given by no call."""
        return self._nan and self._inf

    def beginning(self, name: str, finding: Finding) -> Finding | None:
        """Return the finding of a call that seems to pass on what begins in it, or in its inputs; None for others.

        It is asked before the call is noted.
        """
        is_passed_on = finding.scene is AnomalyKind.PASSES_ON and not effects_of_record(name).carries
        if not is_passed_on or self._nan:
            return None
        inputs = [place for place in finding.inputs if place.side != "forward"]
        nan = [place for place in inputs if _is_nan(place.leaf)]
        weights = [place for place in inputs if getattr(place.leaf, "requires_grad", False)]
        inf = [] if self._inf else [place for place in weights if _is_no_mask(place.leaf)]
        if nan or inf:
            return replace(finding, scene=AnomalyKind.COMES_IN, inputs=tuple(nan or inf))
        gives_nan = any(_is_nan(place.leaf) for place in finding.outputs)
        is_first = bool(inputs) and gives_nan and not self._has_begun
        return replace(finding, scene=AnomalyKind.NAN_OF_INF) if is_first else None


def _is_no_mask(leaf: Leaf) -> bool:
    return is_anomalous(leaf, but=-math.inf)


def _is_nan(leaf: Leaf) -> bool:
    numbers = [leaf.value] if isinstance(leaf, ValueElement) else [leaf.max, leaf.min]
    return any(isinstance(number, float) and math.isnan(number) for number in numbers)


def is_anomalous(leaf: Leaf, but: float | None = None) -> bool:
    """Return whether a value is or holds inf or nan, other than ``but``."""
    if isinstance(leaf, ValueElement):
        return isinstance(leaf.value, float) and not math.isfinite(leaf.value) and leaf.value != but
    extrema = [number for number in (leaf.max, leaf.min) if number is not None]
    if not extrema and leaf.mean is not None:
        extrema = [leaf.mean]
    return not all(math.isfinite(number) or number == but for number in extrema)


def is_numeric(leaf: Leaf) -> bool:
    """Return whether a value is a tensor or a number."""
    return isinstance(leaf, TensorElement) or (
        isinstance(leaf.value, (int, float)) and not isinstance(leaf.value, bool)
    )


def _jump(inputs: Iterable[ValuePath], outputs: Iterable[ValuePath]) -> Finding | None:
    before, after = _largest_norm(inputs), _largest_norm(outputs)
    if before is None or after is None:
        return None
    largest_in, largest_out = before[0], after[0]
    growth = largest_out / largest_in if largest_in else largest_out
    return Finding(AnomalyKind.JUMPS, (before[1],), (after[1],), growth) if growth > JUMP else None


def _largest_norm(places: Iterable[ValuePath]) -> tuple[float, ValuePath] | None:
    norms = [
        (float(place.leaf.norm), place)
        for place in places
        if isinstance(place.leaf, TensorElement) and place.leaf.norm is not None and not math.isnan(place.leaf.norm)
    ]
    return max(norms, key=lambda norm: norm[0], default=None)


def _places(elements: Elements, path: str) -> Iterator[ValuePath]:
    return (ValuePath(place, leaf) for place, leaf in walk(elements, path))


# Roots of numbers below 1 are larger than these, and below 1 as well.
_ROOTS = frozenset({"sqrt"})
# What optimizers do with second moments, which are squares of small numbers: an epsilon may be larger than these.
_OF_MOMENTS = frozenset("sqrt rsqrt reciprocal div divide true_divide truediv rtruediv pow add".split())

_IN_OPTIMIZER = re.compile(r"File [^,]*optim[^,]*,")


def is_expected(finding: Finding, name: str, is_of_optimizer: Callable[[], bool]) -> bool:
    """Return whether a norm that grew is explained by the API; ``is_of_optimizer`` is asked only where it matters."""
    if finding.growth is None:
        return False
    api = api_of(name).rpartition(".")[2].strip("_").removeprefix("foreach_")
    if api in _ROOTS and _are_at_most_one(finding):
        return True
    return api in _OF_MOMENTS and is_of_optimizer()


def is_of_optimizer(frames: Iterable[str]) -> bool:
    """Return whether one of a call's frames is in a file of an optimizer, by its path."""
    return any(_IN_OPTIMIZER.match(frame.lstrip()) for frame in frames)


def _are_at_most_one(finding: Finding) -> bool:
    tensors = [place.leaf for place in finding.outputs if isinstance(place.leaf, TensorElement)]
    return bool(tensors) and all(tensor.max is not None and tensor.max <= 1 for tensor in tensors)


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """The places of one API's inputs and outputs to look away from: indices, as text, and names."""

    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()

    def covers(self, place: ValuePath) -> bool:
        """Return whether a value is at one of the places."""
        return place.position in (self.outputs if place.side == "output" else self.inputs)


#: Rules by the API's name in small letters.
IgnoreRules: TypeAlias = Mapping[str, IgnoreRule]


def is_ignored(finding: Finding, name: str, rules: IgnoreRules) -> bool:
    """Return whether all that a record shows is at ignored places: those of its API's rule, or memory that is unread.

    A rule replaces what is known of an API's memory.
    """
    if finding.growth is not None:
        return False
    rule = rules.get(api_of(name).lower())
    if rule is None:
        effects = effects_of_record(name)
        outputs = [place.position for place in finding.outputs]
        return all(effects.is_unread(place.position) for place in finding.inputs) and all(
            map(effects.is_undefined, outputs)
        )
    return all(rule.covers(place) for place in (*finding.inputs, *finding.outputs))


#: What is overwritten in part, beyond what `msprobe_hooks.dump.effects` knows of memory.
BUILT_IN: IgnoreRules = {"tensor.masked_fill_": IgnoreRule(inputs=frozenset({"0"}))}
