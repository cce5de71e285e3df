"""Level debug: variables that the user saves by name, and their gradients."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.torch.quiet import Quiet
from msprobe_hooks.torch.recorder import TorchRecorder


def save(recorder: TorchRecorder, variable: Any, name: str, save_backward: bool = True) -> None:
    """Record a variable as ``{name}.{count}.debug`` and, when they arrive, its gradients as ``{name}_grad...``.

    Tensors, numbers, strings and nested lists, tuples and dicts of them are taken.
    """
    if not recorder.is_recording:
        return
    count = recorder.number(name)
    _record(recorder, f"{name}.{count}.debug", variable)
    tensors = [tensor for tensor in tensors_in(variable, Tensor) if tensor.requires_grad]
    if save_backward and tensors:
        SavedGradients(recorder, f"{name}_grad.{count}.debug", variable, tensors)


def _record(recorder: TorchRecorder, name: str, variable: Any) -> None:
    with Quiet():
        elements = recorder.elements(name)
        element = elements.whole(variable)
    recorder.emit(name, element, None, "saves")


class SavedGradients:
    """Waits for the gradients of a saved variable; what does not arrive in a backward pass stays null."""

    def __init__(self, recorder: TorchRecorder, name: str, variable: Any, tensors: list[Tensor]) -> None:
        self._recorder = recorder
        self._name = name
        self._shape = _numbered(variable, iter(range(len(tensors) + 1)))
        self._arrived: dict[int, Tensor] = {}
        self._count = len(tensors)
        self._is_done = False
        self._step = recorder.step
        for place, tensor in enumerate(tensors):
            tensor.register_hook(self._hook(place))  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """Write what arrived; a second time does nothing."""
        if not self._is_done and self._recorder.takes_gradients(self._step):
            self._is_done = True
            _record(self._recorder, self._name, _filled(self._shape, self._arrived))

    def _hook(self, place: int) -> Any:
        def arrive(gradient: Tensor) -> None:
            if self._is_done or not self._recorder.takes_gradients(self._step):
                return
            self._arrived[place] = gradient
            self._recorder.passes.at_end(self)
            if len(self._arrived) == self._count:
                self.finish()

        return arrive


class _Place(int):
    """Where in a saved variable a gradient belongs."""


def _numbered(value: Any, numbers: Any) -> Any:
    if isinstance(value, Tensor):
        return _Place(next(numbers)) if value.requires_grad else None
    if isinstance(value, (list, tuple)):
        return [_numbered(item, numbers) for item in value]
    if isinstance(value, dict):
        return {key: _numbered(item, numbers) for key, item in value.items()}
    return None


def _filled(shape: Any, arrived: dict[int, Tensor]) -> Any:
    if isinstance(shape, _Place):
        return arrived.get(shape)
    if isinstance(shape, list):
        return [_filled(item, arrived) for item in shape]
    if isinstance(shape, dict):
        return {key: _filled(item, arrived) for key, item in shape.items()}
    return None
