"""The numbers of a recorded baseline, held beside the outputs that they belong to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from msprobe_standards import Metrics, Standard, Verdict, measure
from pytest_msprobe.baselines.numbers import recorded_output
from pytest_msprobe.baselines.rows import RecordRow
from pytest_msprobe.replay.skips import Skip, SkipReason
from pytest_msprobe.results import OutputResult

# Golden results of the same inputs agree this well from one machine to another, those of others seldom do.
_SAME_SCALE = 1e-3


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
        if why is None:
            return result
        verdict = result.verdict
        if verdict.outcome == "fail":
            reason = f"{verdict.reason}; judged by the same-dtype CPU result, since {why}"
            return replace(result, verdict=replace(verdict, reason=reason))
        lacking = Verdict("skip", verdict.standard, str(Skip(SkipReason.NO_BASELINE, why)))
        return replace(result, verdict=lacking, lacks_baseline=True)

    def _find(self, path: str, standard: Standard) -> Metrics | str:
        target = self._targets[path]
        output = self._row.output(path, list(self._targets).index(path))
        if output is None:
            return f"the recorded run gave no numbers: {self._row.reason}" if self._row.reason else "there is no row"
        recorded = recorded_output(output)
        if recorded is None:
            return f"its row has no numbers: {output.reason}" if output.reason else "its row has no numbers"
        if (recorded.dtype, output.shape) != (target.dtype, tuple(target.shape)):
            return f"its row is about {output.dtype} {output.shape}"
        metrics = recorded.metrics_for(standard)
        if metrics is None:
            return f"its row lacks numbers of standard {standard.name}; record it under the same policy"
        scale = recorded.metrics.get("scale")
        if scale is not None:
            ours = measure(target, self._goldens[path], only={"scale"})["scale"]
            if not math.isclose(scale, ours, rel_tol=_SAME_SCALE):
                return f"its inputs were others: the mean magnitude of golden was {scale:.6g} there and is {ours:.6g}"
        return metrics
