from __future__ import annotations

from tests.support.fixtures.comparisons import compare, tmp_path

__all__ = ["compare", "tmp_path"]
