from __future__ import annotations

from tests.support.fixtures.comparisons import call, compare, real_runs, runs, sides, tensor, three, tmp_path

__all__ = ["call", "compare", "real_runs", "runs", "sides", "tensor", "three", "tmp_path"]
