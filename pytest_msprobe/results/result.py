"""Result of a check, with extras (ranges, inputs, call stack), as data that is read without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from msprobe_standards.verdict import Verdict, worst
from pytest_msprobe.results.error_map import ErrorMap
from pytest_msprobe.results.outcomes import Breakdown, SkipReason

_Extra = TypeVar("_Extra")

#: Under this name a result says in words which math modes took part in its verdict.
MATH_MODE = "math_mode"

#: Under this name a result that passes says why its verdict says little.
LITTLE_JUDGED = "little_judged"

#: Under this name a result has the cases that were saved of it, each with its ``folder``.
SAVED = "saved"

#: Under this name a result that passes says by how much more than sums in float32 an output errs.
NARROW_SUMS = "narrow_sums"


@dataclass(frozen=True, slots=True)
class OutputResult:
    """The verdict on one output or gradient; dtypes and shape are empty for values that are no tensors.

    ``measured`` holds every metric where a report asked for all of them, ``own_measured`` those that its standard
    counts by bounds of its own (``own_bounds``), ``difference`` where and how much a wrong tensor differs, in words.
    ``left_open`` elements differ from golden where torch and the language leave them open.
    ``lacks_baseline``: the verdict would depend on a row that the recorded baseline does not have. ``math_mode`` names
    the modes of the device, as TF32, in which alone the verdict holds; empty where it is by the dtype. ``error_map``
    shows where in a wrong tensor the error sits, of the worst few of a record.
    """

    path: str
    verdict: Verdict
    target_dtype: str = ""
    golden_dtype: str = ""
    shape: tuple[int, ...] = ()
    measured: Mapping[str, float] = field(default_factory=dict)
    difference: str = ""
    own_bounds: Mapping[str, float] = field(default_factory=dict)
    own_measured: Mapping[str, float] = field(default_factory=dict)
    lacks_baseline: bool = False
    left_open: int = 0
    math_mode: str = ""
    error_map: ErrorMap | None = None


@dataclass(frozen=True, slots=True)
class DirectionResult:
    """Result of one record: the deciding verdict, that of each output, and the reason if there is none.

    ``breakdown`` says why a failure has nothing that was measured. ``notes`` are paragraphs that its failure text ends
    with. ``extras`` holds what features add to the verdict, by name: dicts, lists, strings and
    numbers, read by the feature that wrote them.
    """

    record: str
    verdict: Verdict
    outputs: tuple[OutputResult, ...] = ()
    skip: str | None = None
    breakdown: Breakdown | None = None
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """Return how the item ended: its verdict's outcome, or in place of ``fail`` why it did not come to its end."""
        kind = self.breakdown
        return kind.value if kind is not None and kind.did_not_end else self.verdict.outcome

    @property
    def deciding(self) -> OutputResult | None:
        """The output whose verdict is the record's; None where nothing was judged."""
        return next((output for output in self.outputs if output.verdict == self.verdict), None)

    @property
    def reason(self) -> str:
        """Return why it ended so, as one line: of a judged record with the deciding output, else with how it ended."""
        verdict = self.verdict
        line = verdict.reason.partition("\n")[0] or f"{verdict.outcome} by {verdict.standard}"
        kind = self.breakdown
        place = self.deciding.path if self.deciding else kind.value if kind and kind.did_not_end else ""
        return f"{place}: {line}" if place else line

    @property
    def decided_by(self) -> str:
        """The name of the standard that decided, or of what kept the record from one; empty for a skip."""
        return self.verdict.standard if self.breakdown is None else self.breakdown.value

    def without_error_maps(self) -> DirectionResult:
        """Return the same without maps, where the tensors are at hand or no picture is shown."""
        return replace(self, outputs=tuple(replace(output, error_map=None) for output in self.outputs))

    def with_extra(self, name: str, value: Any) -> DirectionResult:
        """Return the same with what a feature adds."""
        return replace(self, extras={**self.extras, name: value})

    def with_property(self, name: str, text: str) -> DirectionResult:
        """Return the same with what JUnit shows as ``msprobe.NAME``."""
        return self.with_extra(PROPERTIES, {**properties_of(self.extras), name: text})


class Start(msgspec.Struct, frozen=True, tag_field="line", tag="start", omit_defaults=True):
    """Place where a process runs items: its card, such as ``npu:3``, described in words, and the math modes by name.

    ``host`` is empty where that is the controller's.
    """

    device: str
    description: str
    math_modes: dict[str, str]
    host: str = ""

    @property
    def place(self) -> str:
        """The card, of all hosts' cards."""
        return card_of_host(self.device, self.host)

    @property
    def modes_in_words(self) -> str:
        """The math modes as one line."""
        return ", ".join(f"{name} {state}" for name, state in self.math_modes.items())

    def __str__(self) -> str:
        return ", ".join(filter(None, [self.description, self.modes_in_words]))


def card_of_host(card: str, host: str) -> str:
    """Return what a card is called among those of all hosts; ``host`` is empty where it is the controller's."""
    return f"{card} of host {host}" if card and host else card


@dataclass(frozen=True, slots=True)
class CallResult:
    """The results of one call.

    Attributes:
        forward: The result of the forward record.
        backward: That of the backward record; None where none was recorded.
    """

    forward: DirectionResult
    backward: DirectionResult | None


def decided(record: str, outputs: Sequence[OutputResult], seconds: float = 0.0) -> DirectionResult:
    """Return what came of a record: its worst output decides; where none could be judged, it is a skip.

    One output that lacks its baseline must not hide behind others that pass.
    """
    verdict = worst(output.verdict for output in outputs)
    lacking = [output for output in outputs if output.lacks_baseline]
    if lacking and (verdict is None or verdict.outcome in ("pass", "skip")):
        why = SkipReason.NO_BASELINE
        detail = lacking[0].verdict.reason.removeprefix(f"{why.value}: ")
        paths = ", ".join(output.path for output in lacking)
        verdict = Verdict("skip", "", f"{why.value}: needed for {paths}, {detail}")
        return DirectionResult(record, verdict, tuple(outputs), why, seconds=seconds)
    if verdict is None or verdict.outcome == "skip":
        reason = verdict.reason if verdict else SkipReason.UNSPECIFIED.value
        return DirectionResult(record, Verdict("skip", "", reason), skip=SkipReason.UNSPECIFIED)
    modes = ", ".join(dict.fromkeys(output.math_mode for output in outputs if output.math_mode))
    extras = {MATH_MODE: modes} if modes else {}
    return DirectionResult(record, verdict, tuple(outputs), seconds=seconds, extras=extras)


def as_missing_baseline(result: OutputResult, why: str) -> OutputResult:
    """Return a result that was reached without the row of the recorded baseline that it depends on.

    A failure stays one: no row could hide it. What passed by a lower limit than that row's does not depend on it.
    Anything else is no verdict.
    """
    verdict = result.verdict
    if verdict.at_most:
        return result
    if verdict.outcome == "fail":
        return replace(result, verdict=replace(verdict, reason=f"{verdict.reason}; {why}"))
    skip = Verdict("skip", verdict.standard, f"{SkipReason.NO_BASELINE.value}: {why}")
    return replace(result, verdict=skip, lacks_baseline=True)


def failed_without_result(record: str, breakdown: Breakdown, reason: str) -> DirectionResult:
    """Return the failure of a record that gave no result to measure."""
    return DirectionResult(record, Verdict("fail", "", reason, margin=math.inf), breakdown=breakdown)


def to_plain(result: DirectionResult) -> dict[str, Any]:
    """Return a result as dicts, lists, strings and numbers."""
    plain: dict[str, Any] = msgspec.to_builtins(result)
    return plain


def from_plain(plain: dict[str, Any]) -> DirectionResult:
    """Return the result that ``to_plain`` took apart."""
    return msgspec.convert(plain, DirectionResult)


def decode_extra(extras: Mapping[str, Any], name: str, kind: type[_Extra]) -> _Extra | None:
    """Return what a feature added to a record, None where that is nothing, or nothing that it could have added."""
    try:
        # A journal spells the numbers that JSON lacks.
        return msgspec.convert(extras[name], kind, strict=False) if name in extras else None
    except msgspec.ValidationError:
        return None


#: Under this name a result has what a feature shows of it in JUnit, texts by name.
PROPERTIES = "properties"

#: Under this name a result has the outcome of its accuracy, where a feature made that a warning.
ACCURACY = "accuracy"


def properties_of(extras: Mapping[str, Any]) -> dict[str, str]:
    """Return what features show of a result in JUnit, by name."""
    return decode_extra(extras, PROPERTIES, dict[str, str]) or {}


def as_utf8(tree: Any) -> Any:
    """Return plain data as it is, with text for what other processes cannot take.

    That is what of a text is no UTF-8, spelled out, and numbers of more than 64 bits.
    """
    try:
        msgspec.msgpack.encode(tree, enc_hook=_of_other_kind)
    except (UnicodeEncodeError, OverflowError):
        return map_leaves(tree, _spelled_out)
    return tree


def map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Return plain data with each value and key that is no container changed."""
    if isinstance(tree, dict):
        return {map_leaves(key, change): map_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [map_leaves(value, change) for value in tree]
    if isinstance(tree, tuple):
        return tuple(map_leaves(value, change) for value in tree)
    return change(tree)


def _of_other_kind(value: object) -> None:
    """Return None for a value that is no plain data; its sender converts it."""


def _spelled_out(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def as_json(tree: Any) -> Any:
    """Return data with words for the numbers that JSON lacks, and as text what of a file's name is no UTF-8."""
    if isinstance(tree, dict):
        return {as_json(key): as_json(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [as_json(value) for value in tree]
    if isinstance(tree, str):
        return tree.encode("utf-8", "backslashreplace").decode()
    return str(tree) if isinstance(tree, float) and not math.isfinite(tree) else tree


#: The extra of a result that has it.
SPREAD = "spread"


class Spread(msgspec.Struct, frozen=True):
    """The least, the middle and the greatest finite value of a series of one rank."""

    rank: int
    least: float
    median: float
    greatest: float


def spread_of(extras: Mapping[str, Any]) -> Spread | None:
    """Return what a result holds of a series' values; None of another, or one without finite values."""
    return decode_extra(extras, SPREAD, Spread)


_LEFT_OPEN = "left_open"


class LeftOpen(msgspec.Struct, frozen=True):
    """Of so many elements of the results some are left open; ``why`` says for which inputs."""

    elements: int
    of: int
    why: str

    def __str__(self) -> str:
        return f"{self.elements} of {self.of} elements differ where any value is right ({self.why})"


def with_left_open(result: DirectionResult, left_open: LeftOpen) -> DirectionResult:
    """Return a result with what was left open of it."""
    return result.with_extra(_LEFT_OPEN, msgspec.to_builtins(left_open))


def left_open_of(extras: Mapping[str, Any]) -> LeftOpen | None:
    """Return what was left open of a record's results; None where nothing was."""
    return decode_extra(extras, _LEFT_OPEN, LeftOpen)


_INPUTS, _CALLED_AT = "inputs", "called_at"


class InputStatistics(msgspec.Struct, frozen=True):
    """One tensor that a record computed with: least, greatest, mean and root mean square of its finite elements.

    They are NaN where there is none, ``not_finite`` counts the others.
    """

    path: str
    dtype: str
    shape: tuple[int, ...]
    least: float
    greatest: float
    mean: float
    rms: float
    not_finite: int = 0


def with_inputs(result: DirectionResult, inputs: Sequence[InputStatistics]) -> DirectionResult:
    """Return a result with its inputs."""
    return result.with_extra(_INPUTS, msgspec.to_builtins(list(inputs)))


def inputs_of(extras: Mapping[str, Any]) -> list[InputStatistics]:
    """Return what the extras of a result say of inputs."""
    return decode_extra(extras, _INPUTS, list[InputStatistics]) or []


def with_called_at(result: DirectionResult, frames: Sequence[str]) -> DirectionResult:
    """Return a result with its call stack, innermost frame first."""
    return result.with_extra(_CALLED_AT, list(frames))


def called_at(extras: Mapping[str, Any]) -> list[str]:
    """Return the call stack that the extras of a result hold."""
    return decode_extra(extras, _CALLED_AT, list[str]) or []
