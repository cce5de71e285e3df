"""The modules of a model of PyTorch, with what autograd knows of their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FrameType

import torch
from torch import Tensor

from msprobe_hooks.instruments.watch.modules import Modules, ignored
from msprobe_hooks.recording.backward import Begun, Emit
from msprobe_hooks.torch import gradients
from msprobe_hooks.torch.recompute import is_recomputed


class TorchModules(Modules):
    """The hooks on the modules of a chunk of the model."""

    tensor_class = Tensor

    def takes_gradient(self, tensor: Tensor) -> bool:
        """Tell whether a backward pass can give a tensor a gradient."""
        return tensor.requires_grad

    def inputs(self, tensors: Sequence[Tensor]) -> gradients.Inputs:
        """Return where gradients leave a call."""
        return gradients.Inputs(tensors)

    def watch(self, outputs: list[Tensor], inputs: gradients.Inputs, emit: Emit, begun: Begun) -> None:
        """Have ``emit`` called by hooks on the nodes of the autograd graph."""
        gradients.watch(outputs, inputs, emit, begun, ignored)

    def backward_pass(self) -> int:
        """Return the number of the autograd engine's task."""
        return torch._C._current_graph_task_id()

    def after_backward_pass(self, callback: Callable[[], None]) -> None:
        """Have the autograd engine call back."""
        torch.autograd.Variable._execution_engine.queue_callback(callback)

    def is_recomputed(self, frame: FrameType) -> bool:
        """Tell whether activation checkpointing makes a call."""
        return is_recomputed(frame)
