from __future__ import annotations

from tests.support.fixtures.comparisons import runs, tmp_path

__all__ = ["runs", "tmp_path"]
