"""msprobe's ``anomaly.json``: each alarm of a rank by tag, step and call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pytest_msprobe.modes.monitor.alarmed import Alarm, Alarmed
from pytest_msprobe.storage.whole import whole_file

FILE = "anomaly.json"

# What msprobe's analysis calls tasks, so that it knows their stage.
_MSPROBE_TASKS = {"grad_unreduced": "pre_grad", "grad_reduced": "post_grad"}


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


def write_anomalies(folder: Path, ranks: Iterable[int], series: Iterable[Alarmed]) -> list[Path]:
    """Write the alarms of all series to ``rank<n>/anomaly.json`` and return the files. Raises OSError."""
    by_rank: dict[int, dict[str, dict[str, object]]] = {rank: {} for rank in ranks}
    for alarmed in sorted(series, key=lambda each: each.first):
        by_rank[alarmed.rank].update(_entries(alarmed))
    paths = []
    for rank, entries in sorted(by_rank.items()):
        path = folder / f"rank{rank}" / FILE
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as part:
            part.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        paths.append(path)
    return paths


def _entries(alarmed: Alarmed) -> Iterator[tuple[str, dict[str, object]]]:
    for alarm in alarmed.alarms:
        anomaly = _anomaly(alarmed, alarm)
        # With the statistic, which msprobe's own key lacks, alarms of one tensor do not replace each other.
        key = f"{anomaly.tag_name}_{alarmed.statistic}_step_{anomaly.step}_call_{anomaly.call_id}"
        yield key, asdict(anomaly)


def _anomaly(alarmed: Alarmed, alarm: Alarm) -> Anomaly:
    micro = f":{alarmed.micro_step}" if alarmed.task in ("actv", "actv_grad") else ""
    task = _MSPROBE_TASKS.get(alarmed.task, alarmed.task)
    tag = f"{alarmed.vpp_stage}:{alarmed.name}{micro}/rank{alarmed.rank}/{task}"
    return Anomaly(
        rank=alarmed.rank,
        step=alarm.step,
        micro_step=alarmed.micro_step,
        pp_stage=0,
        vpp_stage=alarmed.vpp_stage,
        call_id=alarmed.place[-1],
        tag_name=tag,
        message=f"Rule {alarm.rule} reports anomaly signal in ('{tag}', '{alarmed.statistic}') at step {alarm.step}: "
        f"it {alarm.reason}.",
        group_mates=[alarmed.rank],
    )
