from __future__ import annotations

from tests.support.fixtures.comparisons import compare, tmp_path
from tests.support.fixtures.recordings import records

__all__ = ["compare", "records", "tmp_path"]
