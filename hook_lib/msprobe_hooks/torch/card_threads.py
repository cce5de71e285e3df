"""PyTorch's threads in which the gradients of a card are computed."""

from __future__ import annotations

import threading
from contextlib import suppress

import torch


def finish_backward_passes() -> None:
    """Wait until the thread of this process's card has freed the backward passes that have returned.

    A pass holds the modes and other objects of the thread that called it, and the card's thread may free it after
    ``backward`` has returned. A process that ends meanwhile is aborted, because that thread then asks the interpreter,
    which has ended, for its lock. It frees a pass before it takes the next one: here one of a single element, called by
    a thread that has nothing to hold.
    """
    accelerator = getattr(torch, "accelerator", None)
    device = None if accelerator is None else accelerator.current_accelerator()
    is_initialized = None if device is None else getattr(torch.get_device_module(device), "is_initialized", None)
    if device is not None and is_initialized is not None and is_initialized():
        index = torch.accelerator.current_device_index()
        passing = threading.Thread(target=_pass, args=(torch.device(device.type, index),), name="msprobe last pass")
        passing.start()
        passing.join()


def _pass(device: torch.device) -> None:
    # A card that fails has told the program so.
    with suppress(RuntimeError):
        torch.autograd.backward(torch.ones((), device=device, requires_grad=True))
