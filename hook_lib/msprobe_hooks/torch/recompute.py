"""Activation checkpointing: calls that are made again during the backward pass."""

from __future__ import annotations

import inspect
from collections.abc import Hashable
from types import FrameType, FunctionType
from typing import Any, NamedTuple

import torch
from torch.utils.checkpoint import _StopRecomputationError

from msprobe_hooks.torch.gradients import is_in_backward


def is_recomputed(frame: FrameType | None) -> bool:
    """Return whether a call is made by activation checkpointing, during the backward pass."""
    if not is_in_backward():
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("checkpoint.py") and code.co_name in ("recompute_fn", "backward"):
            return True
        frame = frame.f_back
    return False


def is_stop(error: BaseException) -> bool:
    """Return whether an exception is how checkpointing ends a recomputation that has brought what it was made for."""
    return isinstance(error, _StopRecomputationError)


class PostponedStop:
    """Context in which a recomputation is not stopped in the middle of a call, but when the context ends.

    Checkpointing raises out of the call that saves the last tensor it waits for, which then would have no result.
    """

    __slots__ = ("_is_on", "_stop")

    def __enter__(self) -> None:
        self._stop: BaseException | None = None
        hooks = saved_tensors_hooks()
        self._is_on = hooks is not None
        if hooks is None:
            return
        pack, unpack = hooks

        def pack_unless_stopped(tensor: torch.Tensor) -> Any:
            if self._stop is None:
                try:
                    return pack(tensor)
                except _StopRecomputationError as stop:
                    self._stop = stop
            return tensor

        torch._C._autograd._push_saved_tensors_default_hooks(pack_unless_stopped, unpack)

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            torch._C._autograd._pop_saved_tensors_default_hooks()
        if self._stop is not None:
            raise self._stop


def saved_tensors_hooks() -> Any:
    """Return what packs and unpacks the tensors that this thread's calls save, None where nothing does."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(False)


class Checkpoint(NamedTuple):
    """A checkpoint without reentry: the object that identifies it, and the pass that repeats its calls, if one does."""

    frame: Any
    backward_pass: Hashable | None


def running_checkpoint() -> Checkpoint | None:
    """Return the checkpoint that this thread's calls belong to, the innermost; None where there is none."""
    hooks = saved_tensors_hooks()
    # They are functions within torch's own, which hold what they belong to.
    pack = None if hooks is None else inspect.unwrap(hooks[0])
    if not isinstance(pack, FunctionType) or not pack.__code__.co_filename.endswith("checkpoint.py"):
        return None
    held = {
        name: cell.cell_contents for name, cell in zip(pack.__code__.co_freevars, pack.__closure__ or (), strict=True)
    }
    if "target_frame_ref" in held:
        return Checkpoint(held["target_frame_ref"](), held["gid"])
    return Checkpoint(held["frame"], None) if "frame" in held else None
