"""Module calls of PyTorch, also of modules that the program has `torch.jit.script` compile."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.jit import _recursive
from torch.utils.hooks import RemovableHandle

from msprobe_hooks.recording import modules
from msprobe_hooks.recording.interposition import Interposition, is_uncopied
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.no_dispatch import NoDispatch

#: What reads the hooks of a module to script it: its type holds them, and they are compiled.
_READERS = ("infer_concrete_type_builder", "get_hook_stubs")

_HOOKS = ("_forward_hooks", "_forward_pre_hooks")


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


class UnscriptedHooks:
    """As long as one of these is kept, torch scripts modules as if they had no hooks of instruments.

    Their hooks stay where they are. ``remove`` ends it, and so does dropping the object.
    """

    def __init__(self) -> None:
        _readers.begin()
        self.remove = weakref.finalize(self, _readers.end)
        self.remove.atexit = False


class _Readers:
    """Torch's functions: one interposition each, whatever number of instruments run."""

    def __init__(self) -> None:
        self._instruments = 0
        self._interposed: list[Interposition] = []

    def begin(self) -> None:
        self._instruments += 1
        if self._instruments == 1:
            for name in _READERS:
                # A torch without such a function raises where it scripts a module, and says why.
                function: Any = getattr(_recursive, name, None)
                with suppress(TypeError):
                    self._interposed.append(Interposition(function, _read))

    def end(self) -> None:
        self._instruments -= 1
        if self._instruments == 0:
            for one in self._interposed:
                one.remove()
            self._interposed = []


def _read(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return function(*map(_unhooked, args), **kwargs)


def _unhooked(value: Any) -> Any:
    """Return a module with the same attributes and without hooks of instruments; what has none, as it is."""
    if not isinstance(value, nn.Module):
        return value
    remaining: dict[str, Any] = {}
    hidden = False
    for table in _HOOKS:
        # A module that was not initialized has no hooks; torch reports it.
        hooks = vars(value).get(table, {})
        remaining[table] = {number: hook for number, hook in hooks.items() if not is_uncopied(hook)}
        hidden |= len(remaining[table]) < len(hooks)
    if not hidden:
        return value
    # Torch reads from it only. The module itself is not touched, as other threads may call it meanwhile.
    unhooked = nn.Module.__new__(type(value))
    vars(unhooked).update(vars(value) | remaining)
    return unhooked


_readers = _Readers()
