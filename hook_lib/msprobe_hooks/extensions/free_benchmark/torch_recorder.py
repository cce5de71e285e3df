"""The free benchmark of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msprobe_hooks.extensions.free_benchmark.recorder import BenchmarkedCall, BenchmarkRecorder
from msprobe_hooks.extensions.free_benchmark.rerun import Again
from msprobe_hooks.extensions.free_benchmark.table import FILE_NAME, TORCH_FORM
from msprobe_hooks.extensions.free_benchmark.torch_ratio import TorchJudging
from msprobe_hooks.extensions.free_benchmark.torch_rerun import TorchAgain
from msprobe_hooks.torch.recorder import TorchRecorder


class FixedCall(BenchmarkedCall):
    """A call that the program goes on from with the values of the perturbed result."""

    __slots__ = ()

    def make_again(self, again: Again, result: Any) -> None:
        """Put the values of the other result into the program's."""
        assert isinstance(again, TorchAgain)
        again.replace(result, again.results(self._recorder.benchmark.pert_mode))
        self._recorder.note_fixed()


class TorchBenchmarkRecorder(BenchmarkRecorder, TorchRecorder):
    """Makes calls of PyTorch again."""

    judging = TorchJudging()
    form = TORCH_FORM
    fixed_call = FixedCall

    def again(self, name: str, func: Any, args: Any, kwargs: Any) -> TorchAgain:
        """Return a call that is about to be made."""
        return TorchAgain(name, func, args, kwargs)

    def table(self, folder: Path) -> Path:
        """Return the table next to the step's other files."""
        return folder / FILE_NAME
