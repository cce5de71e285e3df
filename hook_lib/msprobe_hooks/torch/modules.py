"""Module calls of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.recording import modules
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.scripting import UnscriptedHooks


class ParameterGradients(modules.ParameterGradients):
    """Records the accumulated gradients of a module's own parameters."""

    def watch(self, parameter: Tensor, arrive: Callable[[Any], None]) -> RemovableHandle:
        """Register a function to call with the parameter once its gradient was added."""
        return parameter.register_post_accumulate_grad_hook(arrive)  # type: ignore[no-untyped-call,no-any-return]

    def gradient(self, parameter: Tensor) -> Tensor | None:
        """Return the gradient of a parameter."""
        with NoDispatch():
            return parameter.grad


class ModuleHooks(modules.ModuleHooks):
    """The hooks on a set of modules; ``remove`` takes them all off."""

    hooks_run_in = nn.modules.module.__file__
    call_method = "forward"
    gradients = ParameterGradients

    def __init__(self, recorder: Recorder, modules: Iterable[tuple[str, Any]]) -> None:
        super().__init__(recorder, modules)
        self._handles.append(UnscriptedHooks())

    @staticmethod
    def is_hidden() -> bool:
        """Return whether a compiler or tracer is looking."""
        return is_traced()

    def note_hidden(self) -> None:
        """Count it, in what runs and not in what Dynamo traces."""
        if not torch.compiler.is_dynamo_compiling():
            self._recorder.note_traced()

    def parameters(self, module: nn.Module) -> Iterable[Tensor]:
        """Return the parameters of a module and of all inside it."""
        # Asked at every call, where names are of no use: module.parameters() puts those of all together.
        waiting, visited = [module], {id(module)}
        for one in waiting:
            yield from (parameter for parameter in one._parameters.values() if parameter is not None)
            inside = [child for child in one._modules.values() if child is not None and id(child) not in visited]
            visited.update(map(id, inside))
            waiting += inside

    def own_parameters(self, module: nn.Module) -> dict[str, Tensor]:
        """Return the parameters that a module itself holds, by name."""
        parameters: dict[str, Tensor] = {}
        for name, parameter in module._parameters.items():
            # One that has two names is listed under the first.
            if parameter is not None and not any(parameter is one for one in parameters.values()):
                parameters[name] = parameter
        return parameters
