"""Computing in the middle of a training without leaving a trace in it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cache

import torch
from torch.autograd.graph import saved_tensors_hooks

from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recompute import saved_tensors_hooks as training_hooks
from pytest_msprobe.engine.replay.ops.op_info import op_info


@contextlib.contextmanager
def without_side_effects(*, draws: bool) -> Iterator[None]:
    """Compute here as if outside of the training: its modes reach nothing, and nothing reaches its generators.

    The state of the CPU's default generator is put back where what runs here ``draws``. It is shared by all threads: to
    put it back where nothing was drawn would have a thread that draws meanwhile draw the same numbers again.

    Checkpointing counts the tensors that calls save; those that are saved in here are kept from it.
    """
    state = torch.get_rng_state() if draws else None
    with contextlib.ExitStack() as contexts:
        if torch.is_inference_mode_enabled():
            contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.autocast("cpu", enabled=False))
        if torch.is_anomaly_enabled():
            contexts.enter_context(torch.autograd.set_detect_anomaly(False))
        if training_hooks() is not None:
            contexts.enter_context(saved_tensors_hooks(_same, _same))
        contexts.enter_context(NoDispatch())
        contexts.enter_context(torch.enable_grad())
        try:
            yield
        finally:
            if state is not None and not torch.equal(state, torch.get_rng_state()):
                torch.set_rng_state(state)


@cache
def may_consume_rng(api: str) -> bool:
    """Return whether a function of PyTorch may draw from a default generator, by its name without its type.

    An operator's schema says so; what is no operator may.
    """
    if op_info(api).random is not None:
        return True
    for name in (api.replace(".", "_"), api.partition(".")[0]):
        operator = getattr(torch.ops.aten, name.strip("_"), None)
        if operator is not None:
            schemas = (getattr(operator, overload) for overload in operator.overloads())
            return any(torch.Tag.nondeterministic_seeded in schema.tags for schema in schemas)
    return True


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
