from __future__ import annotations

from tests.support.fixtures.comparisons import call, compare, real_runs, runs, tensor, three, tmp_path
from tests.support.fixtures.recordings import records

__all__ = ["call", "compare", "real_runs", "records", "runs", "tensor", "three", "tmp_path"]
