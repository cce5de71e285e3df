from __future__ import annotations

from tests.support.fixtures.comparisons import tmp_path
from tests.support.fixtures.recordings import records

__all__ = ["records", "tmp_path"]
