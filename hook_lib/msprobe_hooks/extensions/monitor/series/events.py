"""Series as TensorBoard events: a scalar per statistic and a picture of a distribution, with msprobe's tags.

Events are for looking at: they hold float32, and are not read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.heat_maps import HeatMap
from msprobe_hooks.extensions.monitor.series.paths import make_folder, rank_of, tag
from msprobe_hooks.extensions.monitor.series.tables import Row

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def open_summary(folder: Path) -> SummaryWriter:
    """Return what writes events into a folder, which is made where it is not there.

    Raises MonitorError where that cannot be done, or torch or tensorboard are not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise MonitorError(
            "TensorBoard events need torch and tensorboard; pip install pytest-msprobe[torch,tensorboard], or choose "
            "the format csv"
        ) from None
    make_folder(folder)
    return SummaryWriter(folder)


class EventWriter:
    """Writes scalars named ``<vpp stage>:<name>[:<micro step>]/rank<rank>/<task>_<statistic>``.

    What comes with a distribution has a heat map of it over the steps too, named without a statistic.
    """

    def __init__(self, folder: Path, statistics: Sequence[str]) -> None:
        """Make the folder. Raises MonitorError where that cannot be done, or tensorboard is not installed."""
        self._summary = open_summary(folder)
        self._statistics = tuple(statistics)
        self._rank = rank_of(folder) or 0
        self._maps: defaultdict[str, HeatMap] = defaultdict(HeatMap)
        self._changed: dict[str, int] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, which are on disk after a flush."""
        for row in rows:
            name = tag(row.vpp_stage, row.name, row.micro_step, self._rank, row.task)
            for statistic, value in zip(self._statistics, row.values, strict=True):
                self._summary.add_scalar(f"{name}_{statistic}", value, row.step)
            if row.distribution:
                self._maps[name].add(row.distribution)
                self._changed[name] = row.step

    def flush(self) -> None:
        """Put what was added on disk."""
        changed, self._changed = self._changed, {}
        for name, step in changed.items():
            self._summary.add_image(name, self._maps[name].image(), step, dataformats="HWC")
        self._summary.flush()

    def close(self) -> None:
        """Flush, and close the file."""
        self.flush()
        self._summary.close()
