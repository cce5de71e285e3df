"""PyTorch's autograd engine."""

from __future__ import annotations

from collections.abc import Callable

import torch


class TorchEngine:
    """What tells its backward passes from each other, and when one ends."""

    # Asked at every gradient, so nothing stands between the question and the answer.
    running_pass = staticmethod(torch._C._current_graph_task_id)

    def at_end_of_pass(self, callback: Callable[[], None]) -> None:
        """Have the engine call back."""
        torch.autograd.Variable._execution_engine.queue_callback(callback)
