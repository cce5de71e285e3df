"""Cell calls of MindSpore."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from mindspore import Parameter, Tensor, nn
from mindspore.common.hook_handle import HookHandle

from msprobe_hooks.extensions.mindspore.compilation_watch import FUNCTIONS, Compilations
from msprobe_hooks.recording import modules
from msprobe_hooks.recording.recorder import Recorder

_HAS_ALWAYS_CALL = "always_call" in inspect.signature(nn.Cell.register_forward_hook).parameters


class ParameterGradients(modules.ParameterGradients):
    """Records the gradients of a cell's own parameters."""

    def watch(self, parameter: Parameter, arrive: Callable[[Any], None]) -> Any:
        """Register a function to call with the gradient of a parameter."""
        return parameter.register_hook(arrive)

    def gradient(self, given: Tensor) -> Tensor:
        """Return what came, which is the gradient."""
        return given

    def in_order(self, arrived: dict[str, Any]) -> dict[str, Any]:
        """Return the gradients in the order of the cell's parameters."""
        return {name: arrived[name] for name in self._parameters if name in arrived}


class CellHooks(modules.ModuleHooks):
    """The hooks on a set of cells; ``remove`` takes them all off.

    Where the program compiles a function or a cell's ``construct`` (``mindspore.jit``), they are out of the way of the
    compiler, which would compile them with the cells inside.
    """

    hooks_run_in = str(sys.modules[nn.Cell.__module__].__file__)
    call_method = "construct"
    # MindSpore before 2.10 runs no hook after a cell that raised.
    end_options = modules.ModuleHooks.end_options if _HAS_ALWAYS_CALL else MappingProxyType({"with_kwargs": True})
    gradients = ParameterGradients

    def __init__(self, recorder: Recorder, cells: Iterable[tuple[str, nn.Cell]]) -> None:
        super().__init__(recorder, cells)
        self._compilations = Compilations((FUNCTIONS,), self._out_of_the_way)

    def remove(self) -> None:
        """Take the hooks off."""
        self._compilations.end()
        super().remove()

    def is_hidden(self) -> bool:
        """Return whether this runs inside a call that is recorded as a whole."""
        return self._recorder.is_suspended

    def note_hidden(self) -> None:
        """Do nothing: the call around it is recorded."""

    def parameters(self, module: nn.Cell) -> Iterable[Parameter]:
        """Return the parameters of a cell and of all inside it."""
        parameters: Iterable[Parameter] = module.get_parameters()
        return parameters

    def own_parameters(self, module: nn.Cell) -> dict[str, Parameter]:
        """Return the parameters that a cell itself holds, by their names as attributes."""
        return {name: parameter for name, parameter in module._params.items() if parameter is not None}

    @contextmanager
    def _out_of_the_way(self) -> Iterator[None]:
        # Not by the handles: MindSpore counts what they do and would compile everything again at each call.
        hooks = {
            handle.handle_id: table
            for handle in self._handles
            if isinstance(handle, HookHandle) and (table := handle.hook_dict_ref()) is not None
        }
        tables = [(table, dict(table)) for table in hooks.values()]
        for number, table in hooks.items():
            del table[number]
        try:
            yield
        finally:
            for table, content in tables:
                table.clear()
                table.update(content)
