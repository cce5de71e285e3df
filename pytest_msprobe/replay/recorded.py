"""The numbers of a recorded baseline, held beside the outputs that they belong to."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from msprobe_standards import Metrics, Standard, measure
from pytest_msprobe.baselines.numbers import baseline_metrics
from pytest_msprobe.baselines.rows import RecordRow
from pytest_msprobe.results import OutputResult, lacking_baseline


class RecordedNumbers:
    """Looks up the numbers of one record, for `judge_tree`; it is asked where a verdict depends on them.

    ``targets`` and ``goldens`` are the outputs by path. What cannot be found is remembered, with the reason.
    """

    def __init__(
        self, row: RecordRow, targets: Mapping[str, torch.Tensor], goldens: Mapping[str, torch.Tensor]
    ) -> None:
        self._row = row
        self._targets = targets
        self._goldens = goldens
        self._missing: dict[str, str] = {}

    def __call__(self, path: str, standard: Standard) -> Metrics | None:
        """Return what a standard reads of the baseline's output at a path; None where that is not there."""
        found = self._find(path, standard)
        if isinstance(found, Metrics):
            return found
        self._missing[path] = found
        return None

    def without_missing(self, result: OutputResult) -> OutputResult:
        """Return a result as it stands without the row that it wanted.

        A failure stays one, since the same-dtype CPU result does not explain it either. Anything else is no verdict.
        """
        why = self._missing.get(result.path)
        return result if why is None else lacking_baseline(result, f"judged by the same-dtype CPU result, since {why}")

    def _find(self, path: str, standard: Standard) -> Metrics | str:
        if not self._row.outputs and self._row.reason:
            return f"the recorded run gave no numbers: {self._row.reason}"
        target, golden = self._targets[path], self._goldens[path]
        row = self._row.output(path, list(self._targets).index(path))

        def scale() -> float | None:
            return measure(target, golden, only={"scale"}).get("scale")

        return baseline_metrics(row, standard, target.dtype, tuple(target.shape), scale)
