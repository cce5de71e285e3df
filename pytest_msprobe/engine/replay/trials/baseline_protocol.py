"""Protocol of a recorded baseline, as judging uses it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch

    from msprobe_standards import Metrics, Standard
    from pytest_msprobe.results.result import OutputResult

#: Under this name a result says why a baseline's tensors did not judge, though it has some.
TENSORS_UNUSED = "tensors_unused"

#: Under these names a result says what chose its standards apart from API and dtype, where every metric was asked for.
INPUT_DTYPES, SCALARS = "input_dtypes", "scalars"

Prepare = Callable[[str, "torch.Tensor"], "torch.Tensor"]


class Recorded(Protocol):
    """Recorded baseline of one record."""

    #: Why its tensors were not used, empty where they were or where there are none.
    problem: str

    def for_outputs(
        self, targets: Mapping[str, torch.Tensor], goldens: Mapping[str, torch.Tensor], prepare: Prepare
    ) -> RecordedOutputs:
        """Return it for comparison with the outputs by path; ``prepare`` does to a tensor what was done to those."""


class RecordedOutputs(Protocol):
    """The tensors or numbers of one record, asked for where a verdict depends on them."""

    def __call__(self, path: str, standard: Standard) -> Metrics | torch.Tensor | None:
        """Return the baseline's output at a path, else what a standard reads of it; None where neither is there."""

    def without_missing(self, result: OutputResult) -> OutputResult:
        """Return a result where what it depends on was missing."""
