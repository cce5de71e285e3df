"""Cell calls of MindSpore."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from mindspore import Parameter, Tensor, nn

from msprobe_hooks.recording import modules


class ParameterGradients(modules.ParameterGradients):
    """Records the gradients of a cell's own parameters."""

    def watch(self, parameter: Parameter, arrive: Callable[[Any], None]) -> Any:
        """Have a function called with the gradient of a parameter."""
        return parameter.register_hook(arrive)

    def gradient(self, given: Tensor) -> Tensor:
        """Return what came, which is the gradient."""
        return given

    def in_order(self, arrived: dict[str, Any]) -> dict[str, Any]:
        """Return the gradients in the order of the cell's parameters."""
        return {name: arrived[name] for name in self._parameters if name in arrived}


class CellHooks(modules.ModuleHooks):
    """The hooks on a set of cells; ``remove`` takes them all off."""

    hooks_run_in = str(sys.modules[nn.Cell.__module__].__file__)
    gradients = ParameterGradients

    def is_hidden(self) -> bool:
        """Tell whether this runs inside a call that is recorded as a whole."""
        return self._recorder.is_suspended

    def parameters(self, module: nn.Cell) -> Iterable[Parameter]:
        """Return the parameters of a cell and of all inside it."""
        parameters: Iterable[Parameter] = module.get_parameters()
        return parameters

    def own_parameters(self, module: nn.Cell) -> dict[str, Parameter]:
        """Return the parameters that a cell itself holds, by their names as attributes."""
        return {name: parameter for name, parameter in module._params.items() if parameter is not None}
