"""Items, page and JSON of two checkpoints: parameters by distance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.messages import counted, id_name, numbered
from msprobe_standards.tensor_layouts import is_plain
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import dtype_name
from pytest_msprobe.extensions.checkpoint.quantised import quantised_difference
from pytest_msprobe.extensions.checkpoint.value_differences import (
    Distance,
    can_be_measured,
    distance,
    have_equal_bits,
    low_rank,
    rounded_equal,
    rounding,
)
from pytest_msprobe.extensions.checkpoint.weight_differences import (
    Difference,
    Earlier,
    Others,
    SameShape,
    difference,
)
from pytest_msprobe.reports.differences_page import Compared, Differences, write_differences_page
from pytest_msprobe.reports.page_file import Results
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, failed_without_result
from pytest_msprobe.run.collection import dump_of_id
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.rerun_command import display_path, rerun_step

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.extensions.checkpoint.checkpoint_files import Parameter
    from pytest_msprobe.extensions.checkpoint.same_model import EarlierSteps

STANDARD = "checkpoint"
#: Under this name a result holds msprobe's numbers of a parameter.
EXTRA = "checkpoint"
#: Under this name a failure holds what it has in common with others: a kind in a word, and a cause in words.
CAUSE = "checkpoint_cause"


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
        others: Others,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._earlier = earlier
        self._target = target
        self._golden = golden
        self._limit = limit
        self._others = others

    def judge(self) -> DirectionResult:
        """Compare shape, dtype and values."""
        if self._target is None or self._golden is None:
            lacking = "target" if self._target is None else "golden checkpoint"
            present = self._target or self._golden
            assert present is not None
            fault = f"; {present.fault}" if present.fault else ""
            outcome: Outcome = "warn" if present.optional else "fail"
            reason = f"{present.optional} missing in the {lacking}{fault}".lstrip()
            return _failed(self.name, reason, Difference("missing", reason), outcome)
        try:
            return judge_parameter(self.name, self._target, self._golden, self._limit, self._earlier, self._others)
        except CheckpointError as error:
            return failed_without_result(self.name, Breakdown.RECORD, str(error))


def judge_parameter(
    name: str,
    target: Parameter,
    golden: Parameter,
    limit: float,
    earlier: Callable[[], Iterable[Earlier]] = tuple,
    others: Others = tuple,
) -> DirectionResult:
    """Return the verdict on a parameter that both sides have. Raises CheckpointError where it cannot be read.

    ``earlier`` returns golden parameters of other steps, ``others`` those of other names, to which one that differs may
    be equal.
    """
    for side, words in ((target, ""), (golden, "golden: ")):
        if side.fault:
            cause = f"{words}{side.fault}{_of_which_rank(side, golden, earlier)}"
            return _failed(name, cause, Difference("fault", cause))
    if (target.quantised or golden.quantised) and target.shape == golden.shape:
        return _judge_quantised(name, target, golden, earlier)
    if not (target.has_values and golden.has_values):
        return judge_digests(name, target, golden, limit, earlier, others)
    result = _judge_values(name, target, golden, limit)
    if result.verdict.outcome != "fail":
        return result
    finding = _by_values(target, golden, earlier, others)
    result = _with_cause(result, finding)
    if finding.kind in ("all", "shape", "equal", "rounded"):
        return result
    verdict = replace(result.verdict, reason=f"{finding.words}; {result.verdict.reason}")
    return replace(result, verdict=verdict).with_extra(EXTRA, {**result.extras[EXTRA], **_as_extra(finding)})


def _judge_quantised(
    name: str, target: Parameter, golden: Parameter, earlier: Callable[[], Iterable[Earlier]]
) -> DirectionResult:
    """Return the verdict by half a quantum, where a side is quantised. Raises CheckpointError."""
    if not (target.has_values and golden.has_values):
        what = target.quantised or golden.quantised
        words = f'not compared: {what} has no digests of values; write_weights(..., what="tensors") on both sides'
        return _failed(name, words, Difference("not_compared", words))
    finding = quantised_difference(target, golden, earlier())
    apart = distance(target.load(), golden.load())
    numbers: dict[str, Any] = {
        "l2": apart.l2,
        "cos": apart.cosine,
        "numel": math.prod(target.shape),
        "shape": list(target.shape),
    }
    is_fine = finding.kind in ("equal", "quantised")
    words = finding.words if is_fine else f"{finding.words}; values differ by {apart.relative:.3g} of the norm"
    verdict = Verdict("warn" if is_fine else "fail", STANDARD, words, margin=0.0 if is_fine else math.inf)
    verdict = replace(verdict, metrics={"relative_l2": apart.relative, "max_abs_err": apart.max_abs})
    result = DirectionResult(name, verdict).with_extra(EXTRA, {**numbers, **_as_extra(finding)})
    return result if is_fine else _with_cause(result, finding)


def _failed(name: str, reason: str, finding: Difference, outcome: Outcome = "fail") -> DirectionResult:
    """Return the result of a parameter of which nothing is compared."""
    return _with_cause(DirectionResult(name, Verdict(outcome, STANDARD, reason, margin=math.inf)), finding)


def _with_cause(result: DirectionResult, finding: Difference) -> DirectionResult:
    return result.with_extra(CAUSE, {"kind": finding.kind, "cause": finding.cause or finding.words})


def _of_which_rank(side: Parameter, golden: Parameter, earlier: Callable[[], Iterable[Earlier]]) -> str:
    """Return in words how each of two ranks that should hold the same differs from golden, empty where none does."""
    if side.replica is None:
        return ""
    words = []
    for rank, version in ((side.replica.other_rank, side), (side.replica.rank, side.replica.parameter)):
        try:
            finding = difference(version, golden, earlier())
        except CheckpointError:
            return ""
        words += [f"; {rank}: {finding.words}"] if finding.kind not in ("equal", "rounded", "shape") else []
    return "".join(words)


def _by_values(
    target: Parameter, golden: Parameter, earlier: Callable[[], Iterable[Earlier]], others: Others
) -> Difference:
    """Return how parameters differ of which both sides have values: roundings and ranks as well."""
    is_matrix = max(len(target.shape), len(golden.shape)) < 3
    finding = difference(target, golden, earlier(), others) if is_matrix else Difference("all", "")
    if finding.kind not in ("all", "partly") or target.shape != golden.shape:
        return finding
    ours, theirs = target.load(), golden.load()
    words, is_exact = rounding(ours, theirs)
    if is_exact:
        return replace(finding, kind="twice", words=words, cause="")
    before = f"{finding.words}; " if finding.words else ""
    if words:
        cause = "values are one unit apart, as after another rounding"
        return replace(finding, kind="unit", words=f"{before}{words}", cause=cause)
    rank = low_rank(ours, theirs)
    if rank is not None:
        cause = f"the difference has rank {rank}, as of LoRA weights that were not merged"
        return replace(finding, kind="low_rank", words=f"{before}{cause}", cause=cause)
    return finding


def judge_digests(
    name: str,
    target: Parameter,
    golden: Parameter,
    limit: float,
    earlier: Callable[[], Iterable[Earlier]],
    others: Others = tuple,
) -> DirectionResult:
    """Return the verdict by digests, where one side has no values. Raises CheckpointError."""
    finding = difference(target, golden, earlier(), others)
    is_equal = finding.kind in ("equal", "rounded")
    notes = [note for note in (target.note, golden.note and f"golden: {golden.note}") if note]
    outcome: Outcome = "fail" if not is_equal else "warn" if notes or target.dtype != golden.dtype else "pass"
    needed = [f"no values to measure for limit {limit:g}"] if limit and not is_equal else []
    shapes = [] if target.shape == golden.shape else [_shapes(target, golden)]
    words = [finding.words if finding.kind != "equal" else "equal digests"] if finding.words else []
    reason = "; ".join((*shapes, *words, *needed, *notes))
    numbers = {
        "l2": 0.0 if finding.kind == "equal" else None,
        "cos": 1.0 if finding.kind == "equal" else None,
        "numel": math.prod(target.shape),
        "shape": list(target.shape) if target.shape == golden.shape else [list(target.shape), list(golden.shape)],
        **({} if finding.kind == "equal" else _as_extra(finding)),
    }
    verdict = Verdict(outcome, STANDARD, reason, margin=0.0 if is_equal else math.inf)
    result = DirectionResult(name, verdict).with_extra(EXTRA, numbers)
    return result if is_equal else _with_cause(result, finding)


def _shapes(target: Parameter, golden: Parameter) -> str:
    return f"shape {list(target.shape)}, golden {list(golden.shape)}"


def _as_extra(finding: Difference) -> dict[str, Any]:
    runs = {"rows": finding.rows, "columns": finding.columns}
    return {
        "finding": finding.kind,
        "reason": finding.words,
        **{key: list(map(list, pairs)) for key, pairs in runs.items()},
    }


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
    if not all(is_plain(tensor) and not tensor.is_meta for tensor in (ours, theirs)):
        raise CheckpointError(f"{name} cannot be compared: it is sparse, quantized, nested or without elements")
    if not (have_equal_bits(ours, theirs) or can_be_measured(ours, theirs)):
        dtypes = " and ".join(dict.fromkeys((target.dtype, golden.dtype)))
        raise CheckpointError(f"{name} differs, and elements of {dtypes} cannot be compared")
    apart = distance(ours, theirs)
    narrow = rounded_equal(ours, theirs) if apart.max_abs else None
    fields = {"l2": apart.l2, "cos": apart.cosine, "numel": math.prod(target.shape), "shape": list(target.shape)}
    verdict = _verdict(target, golden, apart, limit)
    if narrow is not None:
        words = f"equal when rounded to {dtype_name(narrow)}: dtype {target.dtype}, golden {golden.dtype}"
        verdict = replace(verdict, outcome="warn", reason=words, margin=0.0)
    return DirectionResult(name, verdict).with_extra(EXTRA, fields)


def _verdict(target: Parameter, golden: Parameter, apart: Distance, limit: float) -> Verdict:
    metrics = {"max_abs_err": apart.max_abs, "rel_err_max": apart.max_relative, "relative_l2": apart.relative}
    metrics |= {} if apart.cosine is None else {"cosine_sim": apart.cosine}
    outcome: Outcome = "fail" if apart.max_abs and not (limit and apart.relative <= limit) else "pass"
    words = [] if target.dtype == golden.dtype else [f"dtype {target.dtype}, golden {golden.dtype}"]
    if apart.l2 or apart.max_abs:
        cosine = "none, one side is zero" if apart.cosine is None else f"{apart.cosine:.9g}"
        words.append(
            f"values differ by {apart.relative:.3g} of the norm, limit {limit:g}; greatest error {apart.max_abs:.3g} "
            f"(relative {apart.max_relative:.3g}), cosine {cosine}"
        )
    elif words:
        words.append("values are equal")
    words += [note for note in (target.note, golden.note and f"golden: {golden.note}") if note]
    outcome = "warn" if outcome == "pass" and (target.dtype != golden.dtype or target.note or golden.note) else outcome
    margin = apart.relative / limit if limit else math.inf if outcome == "fail" else 0.0
    reason = "; ".join(words) or ("equal bits" if apart.is_equal else "equal values")
    return Verdict(outcome, STANDARD, reason, metrics, {"relative_l2": limit}, margin)


def parameter_items(
    file: pytest.File,
    pairs: Mapping[str, tuple[Parameter | None, Parameter | None]],
    limit: float,
    earlier: EarlierSteps,
) -> Iterator[ParameterItem]:
    """Yield an item for each parameter of either side, in the target's order."""
    of_shapes = SameShape({name: golden for name, (_, golden) in pairs.items() if golden is not None})
    for name, shown in zip(pairs, numbered(map(id_name, pairs)), strict=True):
        target, golden = pairs[name]
        yield ParameterItem.from_parent(
            file,
            name=shown,
            target=target,
            golden=golden,
            limit=limit,
            earlier=partial(earlier.of, name),
            others=partial(of_shapes.others, name),
        )


_TITLES = {
    "relative_l2": "distance / norm of golden",
    "max_abs_err": "greatest absolute error",
    "rel_err_max": "greatest relative error",
    "cosine_sim": "cosine",
}


def write_checkpoint_page(
    path: Path, results: Results, *, config: pytest.Config, sides: Sequence[str], order: Mapping[str, int]
) -> None:
    """Write the page of all parameters, in ``order`` by name. Raises OSError where the disk refuses."""
    ordered = sorted(results.items(), key=lambda item: order.get(item[1].record, len(order)))
    # The same parameter of each of several checkpoints is a row of its own.
    several = len(sides) > 2
    rows = [
        replace(
            _compared(f"{_file_of(item)}: " if several else "", result),
            item=(display_path(config, dump_of_id(config, item)), result.record),
        )
        for item, result in ordered
    ]
    differing = sum(row.outcome in ("fail", "warn") for row in rows)
    page = Differences(
        title=f"{differing} of {counted(len(rows), 'parameter')} differ",
        about=" against ".join(sides),
        noun="parameter",
        rows=rows,
        number_title="Distance / norm",
        commands=[rerun_step(config)],
    )
    write_differences_page(path, page, title="Checkpoint")


def _file_of(item: str) -> str:
    return item.partition("::")[0]


def _compared(checkpoint: str, result: DirectionResult) -> Compared:
    numbers: dict[str, Any] = result.extras.get(EXTRA, {})
    metrics = result.verdict.metrics
    unmeasured = 0.0 if result.outcome == "pass" else None
    lines = [f"{title}: {metrics[name]:.9g}" for name, title in _TITLES.items() if name in metrics]
    lines += [f"{name}: {numbers[name]}" for name in ("shape", "numel") if name in numbers]
    parts = [("Numbers", "\n".join(lines))] if lines else []
    runs = [f"{name} {_runs(numbers[name])}" for name in ("rows", "columns") if numbers.get(name)]
    parts += [("What differs", "\n".join(runs))] if runs else []
    why = "" if result.outcome == "pass" else result.verdict.reason
    number = metrics.get("relative_l2", unmeasured)
    return Compared(
        f"{checkpoint}{result.record}",
        layer_of(result.record),
        result.outcome,
        why,
        number=number,
        details=tuple(parts),
    )


def _runs(runs: Sequence[Sequence[int]]) -> str:
    return ", ".join(str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in runs)


def layer_of(name: str) -> str:
    """Return the module of a parameter down to the first numbered one: ``model.layers.3`` of its weights."""
    parts = name.split(".")
    numbered = next((place for place, part in enumerate(parts) if part.isdigit()), None)
    return ".".join(parts[: numbered + 1]) if numbered is not None else parts[0]
