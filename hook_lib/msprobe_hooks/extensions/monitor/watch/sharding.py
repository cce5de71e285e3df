"""Gradients of fully sharded parameters (FSDP2), before they are summed over ranks and cut into shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from msprobe_hooks.recording.interposition import Interposition

#: Takes what FSDP2 keeps of parameters, of which ``sharded_param`` is the model's, and gradients of this process.
Listener = Callable[["list[Any]", "list[Tensor]"], None]


class _Reduction:
    """The function that reduces gradients: one interposition, whatever number of trainings are watched."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._interposed: Interposition | None = None

    def listen(self, listener: Listener) -> None:
        if self._interposed is None:
            from torch.distributed.fsdp._fully_shard._fsdp_collectives import foreach_reduce

            self._interposed = Interposition(foreach_reduce, self._reduce)
        self._listeners.append(listener)

    def leave(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
        if not self._listeners and self._interposed is not None:
            self._interposed.remove()
            self._interposed = None

    def _reduce(self, reduce: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        for listener in list(self._listeners):
            listener(*args[:2])
        return reduce(*args, **kwargs)


_reduction = _Reduction()


def listen(listener: Listener) -> Callable[[], None]:
    """Register a function to call before each reduction; return what ends that.

    Raises ImportError, or TypeError, where this torch reduces in another way.
    """
    _reduction.listen(listener)
    return lambda: _reduction.leave(listener)


def is_distributed_tensor(parameter: Tensor) -> bool:
    """Return whether this process holds a part of a tensor."""
    return hasattr(parameter, "_local_tensor")
