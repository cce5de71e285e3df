"""A profile: what the golden run's own step differs by in another precision, from its recording or a kept report.

The report is the file that ``--msprobe-json`` writes where that recording is compared with the golden run. It holds
numbers alone, so it serves later steps of the same model as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from msprobe_hooks.dump.names import FLOAT_DTYPES, coarser
from msprobe_hooks.dump.recording_paths import DUMP_FILE
from msprobe_hooks.errors import DumpError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.extensions.inference.forward_judge import ForwardJudge, JudgedValue, Profile
from pytest_msprobe.extensions.inference.options import PROFILE, no_rows
from pytest_msprobe.extensions.inference.passes import ForwardPass, read_passes
from pytest_msprobe.extensions.inference.recorded_weights import UNIT_ROUNDOFF
from pytest_msprobe.extensions.inference.rounding_limits import Lengths, ProfiledValue
from pytest_msprobe.extensions.inference.run_values import RunValues, compared_names
from pytest_msprobe.extensions.inference.token_pairs import token_pairs

if TYPE_CHECKING:
    from pytest_msprobe.extensions.model_names.model_names import ModelNames
    from pytest_msprobe.modes.compare.judging.shape_changes import MicroBatches

#: The value of ``format`` in a report: its kind, and the version of what it holds.
FORMAT = "msprobe inference 1"

_Positive = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[float, msgspec.Meta(ge=0, le=2**53)]


class _Value(msgspec.Struct, frozen=True):
    """A value of a report; what was not measured has no dtype or no error."""

    name: str
    target_dtype: str = ""
    golden_dtype: str = ""
    width: int = 0
    tokens: _Count = 0
    left_out: _Count = 0
    scaled_error: _Positive | None = None
    median_error: _Positive = 0
    length: Annotated[float, msgspec.Meta(gt=0)] | None = None
    length_deviation: _Positive = 0

    def as_profiled(self) -> ProfiledValue | None:
        tokens = int(self.tokens - self.left_out)
        # An infinite error, as of a profile that overflowed, would explain any other.
        if not self.target_dtype or self.scaled_error is None or math.isinf(self.scaled_error) or tokens < 1:
            return None
        lengths = None if self.length is None else Lengths(self.length, self.length_deviation, tokens)
        return ProfiledValue(self.target_dtype, tokens, self.scaled_error, self.median_error, lengths)


class _Report(msgspec.Struct, frozen=True):
    """The part of a report that a profile needs."""

    format: str = ""
    target_is_fused: bool = False
    weights_that_differ: Sequence[str] = ()
    values: Sequence[_Value] = ()


def is_kept(path: Path) -> bool:
    """Return whether a profile is a report, not a recording or a dump of one."""
    return path.is_file() and path.name != DUMP_FILE


def is_fused(run: RunValues) -> bool:
    """Return whether a run has modules that hold several of the names, as engines have."""
    return any(canonical.is_fused for canonical in run.modules.values())


def require_tensors(path: Path, passes: Sequence[ForwardPass]) -> None:
    """Raise DumpError where a run has no tensors, and so no rows."""
    task = next(call.dump.task for one in passes for calls in one.modules.values() for call in calls)
    if task != "tensor":
        raise DumpError(f"{path}: {no_rows(task)}")


def open_profile(
    path: Path, golden: RunValues, target: RunValues, names: ModelNames, batches: MicroBatches | None, inherited: float
) -> Profile:
    """Return the profile in a recording or a report of the golden run's step in another precision.

    Raises DumpError where it is of another model, or finer than the runs that it is to explain.
    """
    if is_kept(path):
        return _kept(path, golden, target)
    passes = read_passes(path, names, batches)
    require_tensors(path, passes)
    run = RunValues(passes, names, golden.sizes)
    run.widths = golden.own_widths
    values = compared_names(run, golden)
    pairs = token_pairs(*([one.layout for one in side.passes if one.layout is not None] for side in (run, golden)))
    if not values or not len(pairs):
        missing = "module" if not values else "token"
        raise DumpError(
            f"{path}: no {missing} of it is one of the golden run; the profile ({PROFILE}) is the trainer's own step, "
            "recorded in another precision"
        )
    _refuse_engine(path, golden, is_engine=is_fused(run))
    _refuse_finer(path, {name: run.dtype(name) for name in values}, golden, target)
    judge = ForwardJudge(values, run, golden, pairs, inherited=inherited)
    orders = {name: order for order, name in enumerate(values)}
    return lambda name: profiled_value(judge.judge(orders[name])) if name in orders else None


def profiled_value(judged: JudgedValue) -> ProfiledValue | None:
    """Return what a judged value of a profile explains, None where it was not measured."""
    if judged.measured is None or math.isinf(judged.error):
        return None
    tokens = len(judged.measured.pairs) - judged.left_out
    return ProfiledValue(judged.dtypes[0], tokens, judged.error, judged.median, judged.lengths)


def _kept(path: Path, golden: RunValues, target: RunValues) -> Profile:
    try:
        report = decode_json(read_regular(path), _Report, strict=False)
    except (OSError, JsonError) as error:
        raise DumpError(f"{path}: no profile ({PROFILE}): {error}; {_REMEDY}") from None
    if report.format != FORMAT:
        problem = f"its format is {report.format!r}" if report.format else "it has no format"
        raise DumpError(f"{path}: no profile ({PROFILE}): {problem}, not {FORMAT!r}; {_REMEDY}")
    if report.weights_that_differ:
        raise DumpError(
            f"{path}: its run held other weights than the golden one, first {report.weights_that_differ[0]}; {_REMEDY}"
        )
    _refuse_engine(path, golden, is_engine=report.target_is_fused)
    values = {value.name: value for value in report.values if value.target_dtype}
    _refuse_other_model(path, values, golden, target)
    for name, value in values.items():
        if value.golden_dtype != golden.dtype(name):
            raise DumpError(
                f"{path}: was measured against {value.golden_dtype} at {name}, and the golden run computes it in "
                f"{golden.dtype(name)}; {_REMEDY}"
            )
        if value.target_dtype not in FLOAT_DTYPES:
            raise DumpError(f"{path}: {name} has the dtype {value.target_dtype!r}, which is none of floating point")
    _refuse_finer(path, {name: value.target_dtype for name, value in values.items()}, golden, target)
    profiled = {name: value.as_profiled() for name, value in values.items()}
    return profiled.get


_REMEDY = "compare the trainer's step in another precision with the golden run, and write the report by --msprobe-json"


def _refuse_other_model(path: Path, values: Mapping[str, _Value], golden: RunValues, target: RunValues) -> None:
    """Raise DumpError where a report has other values than the golden run, or of another width."""
    alone = next((name for name in values if not golden.has(name)), "")
    lacking = next((name for name in compared_names(target, golden) if name not in values), "")
    problem = f"{alone} is not in the golden run" if alone else f"it lacks {lacking}" if lacking else ""
    for name, value in values.items():
        width = golden.own_widths.get(name)
        # Of ranks that share a value each has a part of it. What could not be measured has no width.
        is_known = value.width and width is not None and len(golden.calls(name)) == 1
        if not problem and is_known and width != value.width:
            problem = f"{name} has {value.width} columns there and {width} in the golden run"
    if problem:
        raise DumpError(f"{path}: a profile of another model: {problem}; {_REMEDY}")


def _refuse_engine(path: Path, golden: RunValues, *, is_engine: bool) -> None:
    """Raise DumpError where a profile is of the other of engine and trainer: it would explain that one's faults."""
    if is_engine != is_fused(golden):
        raise DumpError(
            f"{path}: its run {'has' if is_engine else 'lacks'} fused modules, unlike the golden run; the profile "
            f"({PROFILE}) is the golden run's own step in another precision"
        )


def _refuse_finer(path: Path, dtypes: Mapping[str, str], golden: RunValues, target: RunValues) -> None:
    """Raise DumpError where a profile rounds less than the run that it is to explain."""
    for name, own in dtypes.items():
        theirs, engine = golden.dtype(name), target.dtype(name) if target.has(name) else ""
        if own and theirs and engine and UNIT_ROUNDOFF[coarser(own, theirs)] < UNIT_ROUNDOFF[coarser(engine, theirs)]:
            raise DumpError(
                f"{path}: computes {name} in {own}, the golden run in {theirs} and the target in {engine}; "
                f"record the trainer's step in {coarser(engine, theirs)} as the profile ({PROFILE})"
            )
