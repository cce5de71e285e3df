"""Writing the series of a monitored run, whatever the format of its files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.series.tables import Row

__all__ = ["Row", "SeriesWriter", "open_writer"]


class SeriesWriter(Protocol):
    """A run's folder that is being written."""

    def add(self, rows: Iterable[Row]) -> None:
        """Take rows of finished steps, in the order in which they were computed."""

    def flush(self) -> None:
        """Put what was added on disk. What is there after this survives a crash of the program."""

    def close(self) -> None:
        """Flush; nothing is added afterwards."""


def open_writer(
    format: str,  # noqa: A002 - the config's key
    folder: Path,
    statistics: Sequence[str],
    *,
    ndigits: int,
    steps_per_file: int,
) -> SeriesWriter:
    """Return what writes files of a format into a run's folder, which is made where it is not there.

    ``ndigits`` are the decimals of a CSV; the other formats keep what they are given. Raises ConfigError for an unknown
    format, MonitorError where the folder cannot be written or what the format needs is not installed.
    """
    opener = _FORMATS.get(format)
    if opener is None:
        raise ConfigError("format", format, ", ".join(_FORMATS), known=_FORMATS)
    return opener(folder, statistics, ndigits, steps_per_file)


def _csv(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:
    from msprobe_hooks.extensions.monitor.series.csv_files import CsvWriter

    return CsvWriter(folder, statistics, ndigits=ndigits, steps_per_file=steps_per_file)


def _mindspore_csv(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:
    from msprobe_hooks.extensions.monitor.series.mindspore_csv import MindSporeCsvWriter

    return MindSporeCsvWriter(folder, statistics, ndigits=ndigits, steps_per_file=steps_per_file)


def _parquet(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:
    from msprobe_hooks.extensions.monitor.series.parquet_files import ParquetWriter

    return ParquetWriter(folder, statistics, steps_per_file=steps_per_file)


def _events(folder: Path, statistics: Sequence[str], ndigits: int, steps_per_file: int) -> SeriesWriter:
    from msprobe_hooks.extensions.monitor.series.events import EventWriter

    return EventWriter(folder, statistics)


_FORMATS: dict[str, Callable[[Path, Sequence[str], int, int], SeriesWriter]] = {
    "csv": _csv,
    "parquet": _parquet,
    "tensorboard": _events,
    "mindspore-csv": _mindspore_csv,
}
