"""MindSpore's autograd engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from mindspore.common.api import _pynative_executor

#: The number of the backward pass that runs where none does.
NO_PASS: Final = -1


class MindSporeEngine:
    """What tells its backward passes from each other, and when one ends."""

    def running_pass(self) -> int:
        """Return the number of the engine's run."""
        return int(_pynative_executor.get_current_autodiff_engine_id())

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Have the engine call back."""
        _pynative_executor.queue_backward_final_callback(callback)
