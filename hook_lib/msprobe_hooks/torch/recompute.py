"""Activation checkpointing: calls that are made again during the backward pass."""

from __future__ import annotations

from types import FrameType

from msprobe_hooks.torch.gradients import is_in_backward


def is_recomputed(frame: FrameType | None) -> bool:
    """Tell whether a call is made by activation checkpointing, during the backward pass."""
    if not is_in_backward():
        return False
    while frame is not None:
        code = frame.f_code
        if code.co_filename.endswith("checkpoint.py") and code.co_name in ("recompute_fn", "backward"):
            return True
        frame = frame.f_back
    return False
