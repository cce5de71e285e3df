"""A device with one fault, and the recording of the calls that meet it."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from msprobe_hooks import record
from pytest_msprobe.devices.sim import SimDevice


class Simulated(SimDevice):
    """Computes as the CPU does, except for what a subclass changes in calls of ``api``.

    It is named after the file of the subclass. In ``backward``, ``arrived`` is the gradient that came in.
    """

    api = ""

    def __init_subclass__(cls) -> None:
        cls.name = cls.__module__

    def call(self, func, args, kwargs, *, record):
        _, api, _, direction = record.rsplit(".", 3)
        if api != self.api:
            return func(*args, **kwargs)
        if direction == "backward":
            return self.backward(list(func(*args, **kwargs)), *self.inputs[0], **self.inputs[1])
        self.inputs = args, kwargs
        result = self.forward(func, *args, **kwargs)
        if isinstance(result, torch.Tensor) and result.requires_grad:
            result.register_hook(lambda gradient: setattr(self, "arrived", gradient))
        return result

    def forward(self, func, *args, **kwargs):
        """Return the result of a call."""
        return func(*args, **kwargs)

    def backward(self, gradients, *args, **kwargs):
        """Return the gradients of the call that had these arguments."""
        return gradients


def without_strides(tensor):
    """Return what a kernel reads that takes each tensor for a contiguous one."""
    strides = torch.empty(tensor.shape, device="meta").stride()
    return tensor.as_strided(tensor.shape, strides)


def record_step(step) -> None:
    """Record the real tensors of what a program's ``step`` calls, into ``runs/<name of the program>``."""
    torch.manual_seed(0)
    with record(Path("runs", Path(sys.argv[0]).stem), level="L1", task="tensor"):
        step()


def record_runs(run) -> None:
    """Let a program record three runs into folders below its own: two are right, one has the fault."""
    for name in ("golden", "right", "faulty"):
        torch.manual_seed(0)
        run(Path("runs", Path(sys.argv[0]).stem, name), faulty=name == "faulty")
