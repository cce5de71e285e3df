"""What was found as one page that needs nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pytest_msprobe.reports.pages.writing import write_page
from pytest_msprobe.results.error_map import BINS, LEVELS, LIMIT_RANK, NO_ELEMENT, NOT_FINITE
from pytest_msprobe.results.result import as_json
from pytest_msprobe.show.findings import Shown


def write_show_page(path: Path, shown: Shown) -> None:
    """Write the page. Names are data and never markup. Raises OSError where the disk refuses."""
    data = as_json(msgspec.to_builtins(shown))
    levels = {"ranks": LEVELS, "limit": LIMIT_RANK, "none": NO_ELEMENT, "notFinite": NOT_FINITE, "bins": BINS}
    write_page(path, __package__, data | {"levels": levels}, title="Tensors")
