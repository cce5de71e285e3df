"""The modules of a model of PyTorch, with what autograd knows of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

from torch import Tensor

from msprobe_hooks.instruments.watch.modules import Modules
from msprobe_hooks.recording.backward import Emit
from msprobe_hooks.torch import gradients
from msprobe_hooks.torch.engine import TorchEngine
from msprobe_hooks.torch.recompute import is_recomputed


class TorchModules(Modules):
    """The hooks on the modules of a chunk of the model."""

    tensor_class = Tensor
    engine = TorchEngine()

    def takes_gradient(self, tensor: Tensor) -> bool:
        """Tell whether a backward pass can give a tensor a gradient."""
        return tensor.requires_grad

    def inputs(self, tensors: Sequence[Tensor]) -> gradients.Inputs:
        """Return where gradients leave a call."""
        return gradients.Inputs(tensors)

    def watch(self, outputs: list[Tensor], inputs: gradients.Inputs, emit: Emit, where: str) -> None:
        """Have ``emit`` called by hooks on the nodes of the autograd graph."""
        gradients.watch(outputs, inputs, emit, self.listener, where)

    def is_recomputed(self, frame: FrameType) -> bool:
        """Tell whether activation checkpointing makes a call."""
        return is_recomputed(frame)
