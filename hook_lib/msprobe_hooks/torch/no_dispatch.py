"""Access to tensors without being seen: no gradients, no overrides, no dispatch modes of the user."""

from __future__ import annotations

from contextlib import AbstractContextManager

from torch._C import DisableTorchFunction, _len_torch_dispatch_stack, _set_grad_enabled, is_grad_enabled
from torch.utils._python_dispatch import _disable_current_modes


class NoDispatch:
    """Context in which tensor operations leave no trace in autograd and reach no mode or subclass override."""

    __slots__ = ("_grad", "_guard", "_modes")

    def __enter__(self) -> None:
        self._grad = is_grad_enabled()
        self._guard = DisableTorchFunction()
        self._guard.__enter__()
        if self._grad:
            _set_grad_enabled(False)
        self._modes: AbstractContextManager[object] | None = None
        if _len_torch_dispatch_stack():
            self._modes = _disable_current_modes()
            self._modes.__enter__()

    def __exit__(self, *_: object) -> None:
        if self._modes is not None:
            self._modes.__exit__(None, None, None)
        if self._grad:
            _set_grad_enabled(True)
        self._guard.__exit__(None, None, None)
