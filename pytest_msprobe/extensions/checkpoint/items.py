"""Parameters as items."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from msprobe_hooks.escaping import id_name, numbered
from msprobe_standards.tensor_layouts import is_plain
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.distance import Distance, can_be_measured, distance, have_equal_bits
from pytest_msprobe.extensions.checkpoint.weight_differences import Difference, Earlier, difference
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, failed_without_result
from pytest_msprobe.run.item import JudgedItem

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.extensions.checkpoint.earlier_steps import EarlierSteps
    from pytest_msprobe.extensions.checkpoint.parameters import Parameter

STANDARD = "checkpoint"
#: Under this name a result holds msprobe's numbers of a parameter.
EXTRA = "checkpoint"


class ParameterItem(JudgedItem):
    """One parameter on both sides, None where a side lacks it; up to ``limit`` of golden's norm they may differ."""

    announces_warnings = False
    # Nothing here runs on a device.
    is_isolated = False

    def __init__(
        self,
        *,
        target: Parameter | None,
        golden: Parameter | None,
        limit: float,
        earlier: Callable[[], Iterable[Earlier]],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._earlier = earlier
        self._target = target
        self._golden = golden
        self._limit = limit

    def judge(self) -> DirectionResult:
        """Compare shape, dtype and values."""
        if self._target is None or self._golden is None:
            lacking = "target" if self._target is None else "golden checkpoint"
            known = self._target or self._golden
            assert known is not None
            fault = f"; {known.fault}" if known.fault else ""
            outcome: Outcome = "warn" if known.is_buffer else "fail"
            reason = f"{'a buffer ' if known.is_buffer else ''}missing in the {lacking}{fault}"
            return DirectionResult(self.name, Verdict(outcome, STANDARD, reason, margin=math.inf))
        try:
            return judge_parameter(self.name, self._target, self._golden, self._limit, self._earlier)
        except CheckpointError as error:
            return failed_without_result(self.name, Breakdown.RECORD, str(error))


def judge_parameter(
    name: str,
    target: Parameter,
    golden: Parameter,
    limit: float,
    earlier: Callable[[], Iterable[Earlier]] = tuple,
) -> DirectionResult:
    """Return the verdict on a parameter that both sides have. Raises CheckpointError where it cannot be read.

    ``earlier`` returns golden parameters of other steps, to which one that differs may still be equal.
    """
    for side, words in ((target, ""), (golden, "golden: ")):
        if side.fault:
            return DirectionResult(name, Verdict("fail", STANDARD, f"{words}{side.fault}", margin=math.inf))
    if not (target.has_values and golden.has_values):
        return judge_digests(name, target, golden, limit, earlier)
    result = _judge_values(name, target, golden, limit)
    if result.verdict.outcome != "fail" or max(len(target.shape), len(golden.shape)) > 2:
        return result
    found = difference(target, golden, earlier())
    if found.kind in ("all", "shape", "equal", "rounded"):
        return result
    verdict = replace(result.verdict, reason=f"{result.verdict.reason}; {found.words}")
    return replace(result, verdict=verdict).with_extra(EXTRA, {**result.extras[EXTRA], **_as_extra(found)})


def judge_digests(
    name: str,
    target: Parameter,
    golden: Parameter,
    limit: float,
    earlier: Callable[[], Iterable[Earlier]],
) -> DirectionResult:
    """Return the verdict by digests, where one side has no values. Raises CheckpointError."""
    found = difference(target, golden, earlier())
    is_equal = found.kind in ("equal", "rounded")
    notes = [note for note in (target.note, golden.note and f"golden: {golden.note}") if note]
    outcome: Outcome = "fail" if not is_equal else "warn" if notes or target.dtype != golden.dtype else "pass"
    needed = [f"no values to measure for limit {limit:g}"] if limit and not is_equal else []
    shapes = [] if target.shape == golden.shape else [_shapes(target, golden)]
    words = [found.words if found.kind != "equal" else "equal digests"] if found.words else []
    reason = "; ".join((*shapes, *words, *needed, *notes))
    numbers = {
        "l2": 0.0 if found.kind == "equal" else None,
        "cos": 1.0 if found.kind == "equal" else None,
        "numel": math.prod(target.shape),
        "shape": list(target.shape) if target.shape == golden.shape else [list(target.shape), list(golden.shape)],
        **({} if found.kind == "equal" else _as_extra(found)),
    }
    verdict = Verdict(outcome, STANDARD, reason, margin=0.0 if is_equal else math.inf)
    return DirectionResult(name, verdict).with_extra(EXTRA, numbers)


def _shapes(target: Parameter, golden: Parameter) -> str:
    return f"shape {list(target.shape)}, golden {list(golden.shape)}"


def _as_extra(found: Difference) -> dict[str, Any]:
    runs = {"rows": found.rows, "columns": found.columns}
    return {"finding": found.kind, "reason": found.words, **{key: list(map(list, each)) for key, each in runs.items()}}


def _judge_values(name: str, target: Parameter, golden: Parameter, limit: float) -> DirectionResult:
    if target.shape != golden.shape:
        numel = [math.prod(target.shape), math.prod(golden.shape)]
        fields: dict[str, Any] = {
            "l2": None,
            "cos": None,
            "numel": numel[0] if numel[0] == numel[1] else numel,
            "shape": [list(target.shape), list(golden.shape)],
        }
        reason = _shapes(target, golden)
        return DirectionResult(name, Verdict("fail", STANDARD, reason, margin=math.inf)).with_extra(EXTRA, fields)
    ours, theirs = target.load(), golden.load()
    if not all(is_plain(each) and not each.is_meta for each in (ours, theirs)):
        raise CheckpointError(f"{name} cannot be compared: it is sparse, quantized, nested or without elements")
    if not (have_equal_bits(ours, theirs) or can_be_measured(ours, theirs)):
        dtypes = " and ".join(dict.fromkeys((target.dtype, golden.dtype)))
        raise CheckpointError(f"{name} differs, and elements of {dtypes} cannot be compared")
    found = distance(ours, theirs)
    fields = {"l2": found.l2, "cos": found.cosine, "numel": math.prod(target.shape), "shape": list(target.shape)}
    return DirectionResult(name, _verdict(target, golden, found, limit)).with_extra(EXTRA, fields)


def _verdict(target: Parameter, golden: Parameter, found: Distance, limit: float) -> Verdict:
    metrics = {"max_abs_err": found.max_abs, "rel_err_max": found.max_relative, "relative_l2": found.relative}
    metrics |= {} if found.cosine is None else {"cosine_sim": found.cosine}
    outcome: Outcome = "fail" if found.max_abs and not (limit and found.relative <= limit) else "pass"
    words = [] if target.dtype == golden.dtype else [f"dtype {target.dtype}, golden {golden.dtype}"]
    if found.l2 or found.max_abs:
        cosine = "none, one side is zero" if found.cosine is None else f"{found.cosine:.9g}"
        words.append(
            f"values differ by {found.relative:.3g} of the norm, limit {limit:g}; greatest error {found.max_abs:.3g} "
            f"(relative {found.max_relative:.3g}), cosine {cosine}"
        )
    elif words:
        words.append("values are equal")
    words += [note for note in (target.note, golden.note and f"golden: {golden.note}") if note]
    outcome = "warn" if outcome == "pass" and (target.dtype != golden.dtype or target.note or golden.note) else outcome
    margin = found.relative / limit if limit else math.inf if outcome == "fail" else 0.0
    reason = "; ".join(words) or ("equal bits" if found.is_equal else "equal values")
    return Verdict(outcome, STANDARD, reason, metrics, {"relative_l2": limit}, margin)


def parameter_items(
    file: pytest.File,
    pairs: Mapping[str, tuple[Parameter | None, Parameter | None]],
    limit: float,
    earlier: EarlierSteps,
) -> Iterator[ParameterItem]:
    """Yield an item for each parameter of either side, in the target's order."""
    for name, shown in zip(pairs, numbered(map(id_name, pairs)), strict=True):
        target, golden = pairs[name]
        others = partial(earlier.of, name)
        yield ParameterItem.from_parent(file, name=shown, target=target, golden=golden, limit=limit, earlier=others)
