"""The files of anomalies, msprobe's ``rank<n>/anomaly.json``, as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from msprobe_hooks.extensions.monitor.series.anomalies import FILE, Alert, Anomaly, entry
from msprobe_hooks.extensions.monitor.series.tables import Row
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import CommandError
from pytest_msprobe.extensions.monitor.series_names import Alarm, Alarmed
from pytest_msprobe.storage.atomic_write import atomic_write

#: What the earliest anomalies of all ranks are written to.
ANALYSIS_FILE = "anomaly_analyse.json"


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
