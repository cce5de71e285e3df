"""Level debug: variables that the user saves by name, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.safety_net import guarded


def save(recorder: Recorder, variable: Any, name: str, save_backward: bool = True) -> None:
    """Record a variable as ``{name}.{count}.debug`` and, when they arrive, its gradients as ``{name}_grad...``.

    Tensors, numbers, strings and nested lists, tuples and dicts of them are taken.
    """
    if not recorder.is_recording:
        return
    with recorder.net(name):
        count = recorder.number(name)
        _record(recorder, f"{name}.{count}.debug", variable)
        tensors = recorder.differentiated(variable) if save_backward else []
        if tensors:
            SavedGradients(recorder, f"{name}_grad.{count}.debug", variable, tensors)


def _record(recorder: Recorder, name: str, variable: Any) -> None:
    with recorder.quiet():
        element = recorder.written_elements(name).whole(variable)
    recorder.emit(name, element, None, "saves")


class SavedGradients:
    """Waits for the gradients of a saved variable; what does not arrive in a backward pass stays null."""

    def __init__(self, recorder: Recorder, name: str, variable: Any, tensors: list[Any]) -> None:
        self._recorder = recorder
        self._name = name
        distinct = {id(tensor): tensor for tensor in tensors}
        self._shape = _places(variable, distinct)
        self._arrived: dict[int, Any] = {}
        self._count = len(distinct)
        self._is_done = False
        self._period = recorder.period
        for place, tensor in distinct.items():
            tensor.register_hook(self._hook(place))

    def finish(self) -> None:
        """Write what arrived; a second time does nothing."""
        if not self._is_done and self._recorder.accepts_gradients(self._period):
            self._is_done = True
            _record(self._recorder, self._name, _filled(self._shape, self._arrived))

    def fail(self, error: Exception) -> None:
        """Report that the gradients could not be taken."""
        self._is_done = True
        self._recorder.note_error(self._name.rsplit(".", 2)[0], error)

    def _hook(self, place: int) -> Callable[[Any], None]:
        def arrive(gradient: Any) -> None:
            if self._is_done or not self._recorder.accepts_gradients(self._period):
                return
            self._arrived[place] = gradient
            self._recorder.passes.at_end(self)
            if len(self._arrived) == self._count:
                self.finish()

        hook = guarded(arrive, self.fail)
        # A pickle of the tensor leaves such a hook out without a warning.
        vars(hook)["__torch_unserializable__"] = True
        return hook


class _Place(int):
    """Index of the tensor whose gradient belongs here in a saved variable."""


def _places(value: Any, tensors: Mapping[int, Any]) -> Any:
    if id(value) in tensors:
        return _Place(id(value))
    if isinstance(value, (list, tuple)):
        return [_places(item, tensors) for item in value]
    if isinstance(value, dict):
        return {key: _places(item, tensors) for key, item in value.items()}
    return None


def _filled(shape: Any, arrived: Mapping[int, Any]) -> Any:
    if isinstance(shape, _Place):
        return arrived.get(shape)
    if isinstance(shape, list):
        return [_filled(item, arrived) for item in shape]
    if isinstance(shape, dict):
        return {key: _filled(item, arrived) for key, item in shape.items()}
    return None
