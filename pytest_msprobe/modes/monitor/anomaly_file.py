"""msprobe's ``anomaly.json``: each alarm of a rank by tag, step and call, and the order in which they are analysed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from msprobe_hooks.decoding import JsonError, decode_json
from pytest_msprobe.errors import CommandError
from pytest_msprobe.modes.monitor.alarmed import Alarm, Alarmed
from pytest_msprobe.storage.whole import whole_file

_FILE = "anomaly.json"

#: What the earliest anomalies of all ranks are written to.
ANALYSIS_FILE = "anomaly_analyse.json"

# What msprobe's analysis calls tasks, so that it knows their stage.
_MSPROBE_TASKS = {"grad_unreduced": "pre_grad", "grad_reduced": "post_grad"}

# The stages of a step by the last word of a tag; msprobe puts what it does not know first.
_FORWARD, _BACKWARD, _OPTIMIZER, _UNKNOWN = 0, 1, 2, -1
_STAGES = {
    "actv": _FORWARD,
    **dict.fromkeys(("actv_grad", "pre_grad", "post_grad", "acc_grad"), _BACKWARD),
    **dict.fromkeys(("exp_avg", "exp_avg_sq"), _OPTIMIZER),
}


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
        """What msprobe sorts by: forward runs from the first pipeline stage to the last, all else from the last."""
        stage = _STAGES.get(self.tag_name.rpartition("/")[2], _UNKNOWN)
        way = 1 if stage == _FORWARD else -1
        return self.step, self.micro_step, stage, way * self.vpp_stage, way * self.pp_stage, self.call_id


def read_anomalies(folder: Path) -> list[tuple[str, Anomaly]]:
    """Return the anomalies of a folder's ``rank<n>/anomaly.json``, each with its key.

    Raises CommandError where there is no such file, or one that cannot be read.
    """
    paths = sorted(folder.glob(f"*/{_FILE}"))
    if not paths:
        raise CommandError(
            f"holds no rank<n>/{_FILE}", file=folder, remedy="give the folder that --msprobe-monitor-json wrote"
        )
    return [named for path in paths for named in _read(path)]


def _read(path: Path) -> list[tuple[str, Anomaly]]:
    try:
        return list(decode_json(path.read_bytes(), dict[str, Anomaly]).items())
    except OSError as error:
        raise CommandError(f"cannot be read: {error.strerror}", file=path) from None
    except JsonError as error:
        raise CommandError(f"no file of anomalies: {error}", file=path) from None


def write_anomalies(folder: Path, ranks: Iterable[int], series: Iterable[Alarmed]) -> list[Path]:
    """Write the alarms of all series to ``rank<n>/anomaly.json`` and return the files. Raises OSError."""
    by_rank: dict[int, dict[str, dict[str, object]]] = {rank: {} for rank in ranks}
    for alarmed in sorted(series, key=lambda each: each.first):
        by_rank[alarmed.rank].update(_entries(alarmed))
    paths = []
    for rank, entries in sorted(by_rank.items()):
        path = folder / f"rank{rank}" / _FILE
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
