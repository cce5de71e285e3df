"""msprobe's ``anomaly.json``: what rules found in the series of a rank, by tag, step and call."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msprobe_hooks.extensions.monitor.series.paths import make_folder, opener, tag, unwritable

if TYPE_CHECKING:
    from msprobe_hooks.extensions.monitor.series.tables import Row, Watched

FILE: Final = "anomaly.json"

#: How many alarms of a series are kept: once a run has gone wrong, each of its series may break a rule at each step.
ALARMS_KEPT: Final = 50

# What msprobe's analysis calls tasks, so that it knows their stage.
_MSPROBE_TASKS = {"grad_unreduced": "pre_grad", "grad_reduced": "post_grad"}

# The stages of a step by the last word of a tag; msprobe puts what it does not know first.
_FORWARD, _BACKWARD, _OPTIMIZER, _UNKNOWN = 0, 1, 2, -1
_STAGES = {
    "actv": _FORWARD,
    **dict.fromkeys(("actv_grad", "pre_grad", "post_grad", "acc_grad"), _BACKWARD),
    **dict.fromkeys(("exp_avg", "exp_avg_sq"), _OPTIMIZER),
}

# The end of the file, which what is added takes the place of.
_END = "\n}"


class Pipeline(NamedTuple):
    """A rank's place in its group of pipeline stages, and the ranks of the group."""

    stage: int
    ranks: list[int]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One alarm, with msprobe's fields."""

    rank: int
    step: int
    micro_step: int
    pp_stage: int
    vpp_stage: int
    call_id: int
    tag_name: str
    message: str
    group_mates: list[int]

    @property
    def order(self) -> tuple[int, ...]:
        """Return msprobe's sort key: forward runs from the first pipeline stage to the last, all else from the last."""
        stage = _STAGES.get(self.tag_name.rpartition("/")[2], _UNKNOWN)
        way = 1 if stage == _FORWARD else -1
        return self.step, self.micro_step, stage, way * self.vpp_stage, way * self.pp_stage, self.call_id


@dataclass(frozen=True, slots=True)
class Alert:
    """A value that a rule finds wrong: the row that it is in and the row's place in its step, and what is wrong."""

    row: Row
    place: int
    statistic: str
    rule: str
    reason: str

    def __str__(self) -> str:
        micro_step = "" if self.row.micro_step is None else f", micro step {self.row.micro_step}"
        return f"step {self.row.step}{micro_step}: {self.row.task} {self.row.name}: {self.statistic} {self.reason}"


def entry(alert: Alert, rank: int, pipeline: Pipeline | None = None) -> tuple[str, dict[str, object]]:
    """Return the key and the fields of an entry; without a pipeline the rank is the only one, of stage 0."""
    row = alert.row
    stage, mates = pipeline or Pipeline(0, [rank])
    micro_step = row.micro_step if row.task in ("actv", "actv_grad") else None
    name = tag(row.vpp_stage, row.name, micro_step, rank, _MSPROBE_TASKS.get(row.task, row.task))
    anomaly = Anomaly(
        rank=rank,
        step=row.step,
        micro_step=row.micro_step or 0,
        pp_stage=stage,
        vpp_stage=row.vpp_stage,
        call_id=alert.place,
        tag_name=name,
        message=f"Rule {alert.rule} reports anomaly signal in ('{name}', '{alert.statistic}') at step {row.step}: "
        f"it {alert.reason}.",
        group_mates=mates,
    )
    # With the statistic, which msprobe's own key lacks, alarms of one tensor do not replace each other.
    return f"{name}_{alert.statistic}_step_{row.step}_call_{alert.place}", asdict(anomaly)


class AnomalyFile:
    """``rank<n>/anomaly.json`` of a training that runs: whole after each step, and never held in memory."""

    def __init__(self, folder: Path, rank: int, pipeline: Pipeline | None = None) -> None:
        """Begin the file anew. Raises MonitorError where that cannot be done."""
        self._path = folder / f"rank{rank}" / FILE
        self._rank = rank
        self._pipeline = pipeline
        self._counts: Counter[tuple[Watched, str]] = Counter()
        make_folder(self._path.parent)
        self._write("{" + _END, is_new=True)

    def add(self, alerts: Iterable[Alert]) -> None:
        """Add what was found in a step, of each series the first `ALARMS_KEPT`. Raises MonitorError."""
        entries = []
        for alert in alerts:
            series = (alert.row.watched, alert.statistic)
            self._counts[series] += 1
            if self._counts[series] <= ALARMS_KEPT:
                entries.append(entry(alert, self._rank, self._pipeline))
        if entries:
            lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(fields)}" for key, fields in entries)
            is_first = self._path.stat().st_size == len("{" + _END)
            self._write(("" if is_first else ",") + "\n" + lines + _END)

    def _write(self, text: str, *, is_new: bool = False) -> None:
        try:
            with open(self._path, "wb" if is_new else "r+b", opener=opener) as file:
                if not is_new:
                    file.seek(-len(_END), 2)
                file.write(text.encode())
        except OSError as error:
            raise unwritable(self._path, error) from None
