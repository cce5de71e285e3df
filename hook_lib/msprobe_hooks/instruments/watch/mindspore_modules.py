"""The cells of a model of MindSpore, with what its autograd knows of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from types import FrameType

from mindspore import Tensor

from msprobe_hooks.instruments.watch.modules import Modules
from msprobe_hooks.mindspore import gradients
from msprobe_hooks.mindspore.elements import takes_gradient
from msprobe_hooks.mindspore.engine import MindSporeEngine
from msprobe_hooks.mindspore.recompute import is_recomputed
from msprobe_hooks.recording.backward import Emit


class Cells(Modules):
    """The hooks on the cells of a chunk of the model."""

    tensor_class = Tensor
    engine = MindSporeEngine()

    def takes_gradient(self, tensor: Tensor) -> bool:
        """Tell whether a gradient function that is running differentiates by a tensor, and knows where it is from."""
        return takes_gradient(tensor) and tensor._grad_node is not None

    def inputs(self, tensors: Sequence[Tensor]) -> gradients.Inputs:
        """Return where gradients leave a call."""
        return gradients.Inputs(tensors)

    def watch(self, outputs: list[Tensor], inputs: gradients.Inputs, emit: Emit, where: str) -> None:
        """Have ``emit`` called by hooks on the nodes of the autograd graph."""
        gradients.watch(outputs, inputs, emit, self.listener, where)

    def is_recomputed(self, frame: FrameType) -> bool:
        """Tell whether a call is made again in a backward pass, as of a cell whose ``recompute`` was set."""
        return is_recomputed(frame)
