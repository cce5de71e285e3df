from __future__ import annotations

from tests.support.fixtures.comparisons import runs, sides, tmp_path

__all__ = ["runs", "sides", "tmp_path"]
