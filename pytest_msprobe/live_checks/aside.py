"""Computing in the middle of a training without leaving a trace in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch.autograd.graph import saved_tensors_hooks

from msprobe_hooks.torch.quiet import Quiet
from msprobe_hooks.torch.recompute import saved_tensors_hooks as training_hooks


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Compute here as if outside of the training: its modes reach nothing, and nothing reaches its generators.

    Checkpointing counts the tensors that calls save; those that are saved in here are kept from it.
    """
    state = torch.get_rng_state()
    with contextlib.ExitStack() as contexts:
        if torch.is_inference_mode_enabled():
            contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.autocast("cpu", enabled=False))
        if torch.is_anomaly_enabled():
            contexts.enter_context(torch.autograd.set_detect_anomaly(False))
        if training_hooks() is not None:
            contexts.enter_context(saved_tensors_hooks(_same, _same))
        contexts.enter_context(Quiet())
        contexts.enter_context(torch.enable_grad())
        try:
            yield
        finally:
            torch.set_rng_state(state)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
