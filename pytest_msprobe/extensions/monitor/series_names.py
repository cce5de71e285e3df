"""Names, kinds and order of series, alarms of broken rules, and results of series with the files that they are from."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from msprobe_hooks.dump.recording_paths import DUMP_FILE
from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.anomalies import ALARMS_KEPT, FILE, Alert, Anomaly, entry
from msprobe_hooks.extensions.monitor.series.paths import RECORDED_TASKS
from msprobe_hooks.extensions.monitor.series.reader import (
    Run,
    Series,
    SeriesKey,
    open_run,
    run_files,
    series_file,
    series_files,
)
from msprobe_hooks.extensions.monitor.series.tables import Row, Watched, is_recorded_folder
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.verdict import Outcome, Verdict
from pytest_msprobe.errors import CommandError
from pytest_msprobe.results.outcomes import BaseSkipReason
from pytest_msprobe.results.result import SPREAD, DirectionResult, Spread, decode_extra
from pytest_msprobe.storage.files import atomic_write

_OF_COLLECTIVE = re.compile(r"\w+/(pre|post)_\d+")
_RECORDED_PARAMETER = re.compile(r"((?:Module|Cell)\..+)\.parameters\.([^.]+)")
_RECORDED_CALL = re.compile(r"((?!Module\.|Cell\.).+\.[0-9]+)\.(?:input|output)\b.*")

#: Where a series stands within a step: earlier ones are computed earlier.
Place = tuple[int, int, int]

#: The extra of a result that has it.
ALARMED = "monitor"

#: The extra of a result whose series has a single step.
ONE_STEP = "one_step"

_NEIGHBOURS = 3

#: What the earliest anomalies of all ranks are written to.
ANALYSIS_FILE = "anomaly_analyse.json"


class Kind(Enum):
    """Kind of object that a series is of."""

    ACTIVATION = "activation"
    ACTIVATION_GRADIENT = "gradient of an activation"
    PARAMETER_GRADIENT = "gradient of a parameter"
    PARAMETER = "parameter"
    UPDATED_PARAMETER = "parameter after the step"
    MOMENT = "state of the optimizer"
    RATIO = "what an optimizer divides"
    WITHOUT_GRADIENT = "call that no gradient came back to"
    COLLECTIVE = "tensor of a collective"
    OTHER = "other"


GRADIENTS = frozenset({Kind.ACTIVATION_GRADIENT, Kind.PARAMETER_GRADIENT})
PARAMETERS = frozenset({Kind.PARAMETER, Kind.UPDATED_PARAMETER})
#: What may be computed from the gradients of the same step, as by the optimizer.
FROM_GRADIENTS = frozenset({Kind.UPDATED_PARAMETER, Kind.MOMENT, Kind.RATIO, Kind.WITHOUT_GRADIENT})

_KINDS = {
    "actv": Kind.ACTIVATION,
    "forward": Kind.ACTIVATION,
    "recompute": Kind.ACTIVATION,
    "actv_grad": Kind.ACTIVATION_GRADIENT,
    "backward": Kind.ACTIVATION_GRADIENT,
    "grad_unreduced": Kind.PARAMETER_GRADIENT,
    "grad_reduced": Kind.PARAMETER_GRADIENT,
    "parameters_grad": Kind.PARAMETER_GRADIENT,
    "param_origin": Kind.PARAMETER,
    "param": Kind.PARAMETER,
    "param_updated": Kind.UPDATED_PARAMETER,
    "exp_avg": Kind.MOMENT,
    "exp_avg_sq": Kind.MOMENT,
    "adam_update": Kind.RATIO,
    "adam_ratio": Kind.RATIO,
}


def kind_of(series: SeriesKey | Watched) -> Kind:
    """Return what a series is of, as far as its task and name show."""
    kind = _KINDS.get(series.task, Kind.OTHER)
    if kind is Kind.OTHER and series.task == "other" and _OF_COLLECTIVE.fullmatch(series.name):
        return Kind.COLLECTIVE
    if kind is Kind.ACTIVATION and ".parameters." in series.name and _RECORDED_PARAMETER.fullmatch(series.name):
        return Kind.PARAMETER
    return kind


def parameter_name(series: SeriesKey | Watched) -> str:
    """Return what a parameter and its gradient are both called."""
    match = _RECORDED_PARAMETER.fullmatch(series.name) if series.task in ("forward", "recompute") else None
    return f"{match[1]}.{match[2]}" if match else series.name


def is_input(series: SeriesKey | Watched) -> bool:
    """Return whether an activation is what its module or call is given."""
    return series.name.endswith(".input") or ".input." in series.name


class Kinds:
    """The kinds of the tensors of one run, of which a recording's depend on each other.

    A recorded call of an API that no gradient came back to may be one of the optimizer's, which has no name of its own.
    """

    def __init__(self, tensors: Iterable[Watched]) -> None:
        self._differentiated = {_call(tensor) for tensor in tensors if tensor.task == "backward"} - {None}

    def of(self, tensor: Watched) -> Kind:
        """Return what a tensor is."""
        kind = kind_of(tensor)
        if kind is Kind.ACTIVATION and self._differentiated and tensor.task != "actv":
            call = _call(tensor)
            return kind if call is None or call in self._differentiated else Kind.WITHOUT_GRADIENT
        return kind


def _call(recorded: Watched) -> str | None:
    """Return the call of an API that a recorded tensor is of, as ``Functional.linear.3``; None for a module's."""
    match = _RECORDED_CALL.fullmatch(recorded.name)
    return match[1] if match else None


def item_name(key: SeriesKey) -> str:
    """Return a series' name, as ``grad_reduced/layers.0.weight/norm`` or ``actv/vpp1:layers.0.input:micro2/max``.

    The first virtual pipeline stage and the first micro step go without saying.
    """
    return f"{key.task}/{tensor_name(key)}/{key.statistic}"


def tensor_name(key: SeriesKey) -> str:
    """Return the part of the name that identifies the tensor."""
    stage = f"vpp{key.vpp_stage}:" if key.vpp_stage else ""
    micro = f":micro{key.micro_step}" if key.micro_step else ""
    return f"{stage}{key.name}{micro}"


def places(keys: Sequence[SeriesKey]) -> dict[SeriesKey, Place]:
    """Return the place of each series; ``keys`` are in the order computed but for micro steps, which repeat it."""
    return {key: (_phase(key), key.micro_step or 0, index) for index, key in enumerate(keys)}


def _phase(key: SeriesKey) -> int:
    kind = kind_of(key)
    if key.micro_step is not None or key.task in RECORDED_TASKS:
        return 1
    if kind is Kind.PARAMETER:
        return 0
    if key.task == "grad_unreduced":
        return 2
    if kind is Kind.COLLECTIVE:
        # What a rank gives comes before what all ranks make of it, the reduced gradients among that.
        return 3 if "/pre_" in key.name else 4
    return 5


class Alarm(msgspec.Struct, frozen=True, array_like=True):
    """A value that breaks a rule, or leaves what a golden run allows."""

    step: int
    rule: str
    reason: str


class Alarmed(msgspec.Struct, frozen=True):
    """The alarms of one series in the order of steps, the series' place within a step, and what names it."""

    item: str
    rank: int
    task: str
    vpp_stage: int
    name: str
    micro_step: int
    statistic: str
    place: Place
    alarms: list[Alarm]

    @property
    def first(self) -> tuple[int, Place, int]:
        """Return what sorts series by their first alarm: the step, the order computed, the rank."""
        return self.alarms[0].step, self.place, self.rank


def alarmed_of(extras: Mapping[str, Any]) -> Alarmed | None:
    """Return what a result says of alarms."""
    return decode_extra(extras, ALARMED, Alarmed)


def story(series: Series, alarms: Sequence[Alarm]) -> str:
    """Return what happened first and the values around it; its first line is the summary."""
    first = alarms[0]
    return "\n".join([first_line(series, first), "", *_neighbourhood(series, first.step), *_later(alarms)])


def first_line(series: Series, alarm: Alarm) -> str:
    """Return the alarm as one line."""
    return f"{alarm.rule} at step {alarm.step}: {series.key.statistic} {alarm.reason}"


def _neighbourhood(series: Series, step: int) -> Iterator[str]:
    index = int(series.steps.searchsorted(step))
    around = slice(max(index - _NEIGHBOURS, 0), index + _NEIGHBOURS + 1)
    width = len(str(series.steps[around][-1]))
    for neighbour, value in zip(series.steps[around].tolist(), series.values[around].tolist(), strict=True):
        yield f"  {'>' if neighbour == step else ' '} step {neighbour:>{width}}  {value:.6g}"


def _later(alarms: Sequence[Alarm]) -> Iterator[str]:
    if len(alarms) >= ALARMS_KEPT:
        yield f"{len(alarms) - 1} more alarms up to step {alarms[-1].step}; the search stopped there"
    elif len(alarms) > 1:
        several = f"{len(alarms) - 1} more alarms, the last" if len(alarms) > 2 else "another alarm"
        yield f"{several} at step {alarms[-1].step}"


def read_anomalies(folder: Path) -> list[tuple[str, Anomaly]]:
    """Return the anomalies of a folder's ``rank<n>/anomaly.json``, each with its key.

    Raises CommandError where there is no such file, or one that cannot be read.
    """
    paths = sorted(folder.glob(f"*/{FILE}"))
    if not paths:
        raise CommandError(
            f"holds no rank<n>/{FILE}",
            file=folder,
            remedy="name the folder that --msprobe-json of a monitored run or TrainerMon's alert.dump wrote",
        )
    return [named for path in paths for named in _read(path)]


def _read(path: Path) -> list[tuple[str, Anomaly]]:
    try:
        return list(decode_json(read_regular(path), dict[str, Anomaly]).items())
    except OSError as error:
        raise CommandError(f"cannot be read: {error.strerror}", file=path) from None
    except JsonError as error:
        raise CommandError(f"not a file of anomalies: {error}", file=path) from None


def write_anomalies(folder: Path, ranks: Iterable[int], series: Iterable[Alarmed]) -> list[Path]:
    """Write the alarms of all series to ``rank<n>/anomaly.json`` and return the files. Raises OSError."""
    by_rank: dict[int, dict[str, dict[str, object]]] = {rank: {} for rank in ranks}
    for alarmed in sorted(series, key=lambda one: one.first):
        by_rank[alarmed.rank].update(entry(_alert(alarmed, alarm), alarmed.rank) for alarm in alarmed.alarms)
    paths = []
    for rank, entries in sorted(by_rank.items()):
        path = folder / f"rank{rank}" / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as part:
            part.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        paths.append(path)
    return paths


def _alert(alarmed: Alarmed, alarm: Alarm) -> Alert:
    row = Row(alarmed.task, alarmed.vpp_stage, alarmed.name, alarm.step, alarmed.micro_step, ())
    return Alert(row, alarmed.place[-1], alarmed.statistic, alarm.rule, alarm.reason)


def alarmed(
    key: SeriesKey, rank: int | None, place: Place, alarms: list[Alarm], outcome: Outcome, story: str
) -> DirectionResult:
    """Return the result of a series with alarms, by the rule of the first of them."""
    series = Alarmed(
        item=item_name(key),
        rank=rank or 0,
        task=key.task,
        vpp_stage=key.vpp_stage,
        name=key.name,
        micro_step=key.micro_step or 0,
        statistic=key.statistic,
        place=place,
        alarms=alarms,
    )
    verdict = Verdict(outcome, alarms[0].rule, story, margin=math.inf)
    return DirectionResult(item_name(key), verdict).with_extra(ALARMED, msgspec.to_builtins(series))


class MonitorSkip(BaseSkipReason):
    """Reason why a series is not judged."""

    NO_RULE = "the policy has no rule for this statistic"
    NOT_MEASURED = "no value at any step: not a tensor, no elements, or, for id, with dimensions"
    WATCHED_BY_ONE = "only one of the two runs has such series"
    OTHER_MICRO_BATCHES = "the steps of the two runs have other micro batches, which this tensor depends on"
    JUMPS = "a share of elements jumps by whole elements; it is judged in single runs only"
    ROUNDING = "the gradient is so small compared with the largest that rounding may decide its signs"
    NO_COMMON_STEP = "the two runs have no step in common"


def skipped(key: SeriesKey, reason: MonitorSkip) -> DirectionResult:
    """Return the result of a series that is not judged."""
    return DirectionResult(item_name(key), Verdict("skip", "", reason.value), skip=reason)


def with_spread(result: DirectionResult, rank: int | None, values: NDArray[np.float64]) -> DirectionResult:
    """Return a result with the numbers between which the values of its series lie, where any is finite."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return result
    spread = Spread(rank or 0, float(finite.min()), float(np.median(finite)), float(finite.max()))
    return result.with_extra(SPREAD, msgspec.to_builtins(spread))


def with_single_step(result: DirectionResult, steps: int) -> DirectionResult:
    """Return a result with a mark where its series has a single step, which no rule on changes judges."""
    return result.with_extra(ONE_STEP, True) if steps == 1 else result


def first_file(folder: Path) -> Path:
    """Return the file of series that comes first by task and steps, or the folder's own dump."""
    if is_recorded_folder(folder):
        return folder / DUMP_FILE
    return min((name, path) for path, name in series_files(folder))[1]


def open_run_of(path: Path) -> Run:
    """Open the folder that a file of series is in. Raises MonitorError for any other file."""
    if not path.exists():
        raise MonitorError(f"{path}: no such folder; pass the folder that a monitored run wrote")
    if series_file(path) is None and path.name != DUMP_FILE:
        raise MonitorError(
            f"{path}: not a file of series, such as actv_0-9.csv; pass the folder that a monitored run wrote"
        )
    return open_run(path.parent)


def listing(folder: Path) -> str:
    """Return a short digest of the files that a rank's run is read from, by name and size."""
    names = sorted(f"{'/'.join(path.parts[-3:])} {path.stat().st_size}" for path in run_files(folder))
    return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest()
