"""Calls of a cell whose ``recompute`` was set, or under ``mindspore.recompute``, made again in the backward pass."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from types import FrameType
from typing import Any, Final, NamedTuple

import mindspore
from mindspore import nn

from msprobe_hooks.extensions.mindspore.gradients import NO_PASS, MindSporeEngine

_MODULE: Final = sys.modules[mindspore.recompute.__module__]
# Which cells and exceptions it has depends on MindSpore's version; isinstance of none is never true.
_STOP: Final = getattr(_MODULE, "_StopRecomputationError", ())
_CELL: Final = getattr(_MODULE, "_RecomputeCell", ())
# What makes the calls again: a cell's own backward function; or, where nothing is entered anew, what brings the tensors
# that were not kept.
_AGAIN: Final = ("bprop", "unpack")

_ENGINE: Final = MindSporeEngine()


def is_recomputed(frame: FrameType | None) -> bool:
    """Return whether a call that is made in ``frame`` is made again, during the backward pass."""
    if _ENGINE.running_pass() == NO_PASS:
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_filename == _MODULE.__file__ and code.co_name in _AGAIN:
            return True
        frame = frame.f_back
    return False


def is_stop(error: BaseException) -> bool:
    """Return whether an exception is how MindSpore ends a recomputation that has brought what it was made for."""
    return isinstance(error, _STOP)


def is_recomputation_of(cell: nn.Cell) -> bool:
    """Return whether ``recompute`` put a cell around the program's; MindSpore never ends its hooks' calls."""
    return isinstance(cell, _CELL)


class Recomputation(NamedTuple):
    """A call of a recomputed cell: the object that makes it again, how many such calls wait, which pass repeats it."""

    owner: Any
    depth: int
    backward_pass: Hashable
    is_again: bool


def running_recomputation(frame: FrameType | None) -> Recomputation | None:
    """Return the innermost recomputation that a call in ``frame`` is made in, None where there is none."""
    while frame is not None:
        if frame.f_code.co_filename == _MODULE.__file__:
            held = frame.f_locals
            owner = held.get("self")
            name = frame.f_code.co_name
            if isinstance(owner, _CELL) and name in ("construct", "bprop"):
                # The calls of one cell are made again in the opposite order.
                is_again = name == "bprop"
                return Recomputation(owner, len(owner.args) + is_again, None, is_again)
            if name == "recompute" and owner is not None:
                return Recomputation(owner, 0, held.get("recompute_key"), True)
            if name == "recompute_without_reentrant" and "handle" in held:
                return Recomputation(held["handle"], 0, None, False)
        frame = frame.f_back
    return None
