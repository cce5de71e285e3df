"""What a recorded baseline has of a record, held beside the outputs that it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from msprobe_standards import Metrics, Standard, measure
from pytest_msprobe.engine.replay.recorded import Prepare
from pytest_msprobe.modes.check.baselines.numbers import baseline_metrics, other_inputs
from pytest_msprobe.results.result import OutputResult, lacking_baseline

if TYPE_CHECKING:
    from pytest_msprobe.modes.check.baselines.result import RecordedResult


class RecordedBaseline:
    """Looks up the tensors or numbers of one record, for `judge_tree`; it is asked where a verdict depends on them.

    ``targets`` and ``goldens`` are the outputs by path; ``prepare`` does to a tensor at a path what was done to those.
    What cannot be found is remembered, with the reason.
    """

    def __init__(
        self,
        recorded: RecordedResult,
        targets: Mapping[str, torch.Tensor],
        goldens: Mapping[str, torch.Tensor],
        prepare: Prepare,
    ) -> None:
        self._recorded = recorded
        self._targets = targets
        self._goldens = goldens
        self._prepare = prepare
        self._missing: dict[str, str] = {}

    def __call__(self, path: str, standard: Standard) -> Metrics | torch.Tensor | None:
        """Return the baseline's output at a path, else what a standard reads of it; None where neither is there."""
        found = self._find(path, standard)
        if isinstance(found, str):
            self._missing[path] = found
            return None
        return found

    def without_missing(self, result: OutputResult) -> OutputResult:
        """Return a result as it stands without the row that it wanted.

        A failure stays one, since the same-dtype CPU result does not explain it either. Anything else is no verdict.
        """
        why = self._missing.get(result.path)
        return result if why is None else lacking_baseline(result, f"judged by the same-dtype CPU result, since {why}")

    def _find(self, path: str, standard: Standard) -> Metrics | torch.Tensor | str:
        whole = self._recorded.row
        if not whole.outputs and whole.reason:
            return f"the recorded run gave no numbers: {whole.reason}"
        target, golden = self._targets[path], self._goldens[path]
        row = whole.output(path, list(self._targets).index(path))

        def scale() -> float | None:
            return measure(target, golden, only={"scale"}).get("scale")

        if row is not None:
            tensor = self._recorded.tensor(path, target.dtype, tuple(target.shape))
            if tensor is not None and not other_inputs(row, scale):
                return self._prepare(path, tensor)
        return baseline_metrics(row, standard, target.dtype, tuple(target.shape), scale)
