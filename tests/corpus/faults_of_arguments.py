"""Defects of what a call writes to: what it returns is right, the memory of its argument is not."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.values.pytree import map_tensors
from tests.corpus.fault import Launch, plain_name, variant

ELEMENTWISE = "add mul relu clamp copy masked_fill index_put"
FUNCTIONS = "relu exp tanh sigmoid sqrt"
LISTS = "foreach_add foreach_mul foreach_lerp"


def _written(launch: Launch) -> torch.Tensor | None:
    """Return the tensor that a call says it writes to."""
    out = launch.kwargs.get("out")
    if out is not None:
        return out if isinstance(out, torch.Tensor) else None
    asked = launch.in_place or launch.kwargs.get("inplace") is True
    return launch.args[0] if asked and isinstance(launch.args[0], torch.Tensor) else None


def _elsewhere(launch: Launch) -> Any:
    """Return what the call returns, computed in memory of its own."""
    args, kwargs = map_tensors(torch.clone, [list(launch.args), launch.kwargs])
    return launch.func(*args, **kwargs)


@variant(ELEMENTWISE)
def argument_left_as_it_was(launch: Launch) -> Any:
    """An in-place call computes in memory of its own and returns that."""
    return launch.run() if _written(launch) is None else _elsewhere(launch)


@variant(ELEMENTWISE)
def half_of_the_argument_written(launch: Launch) -> Any:
    """An in-place call returns what is right, and writes the first half of it back."""
    return _written_back(launch, lambda right, former: torch.cat([right[: len(right) // 2], former[len(right) // 2 :]]))


@variant(ELEMENTWISE)
def argument_written_in_bfloat16(launch: Launch) -> Any:
    """An in-place call returns what is right, and writes it back in bfloat16."""
    return _written_back(launch, lambda right, former: right.bfloat16().to(right.dtype))


@variant(ELEMENTWISE)
def argument_written_transposed(launch: Launch) -> Any:
    """An in-place call returns what is right, and writes it back from the last element to the first."""
    return _written_back(launch, lambda right, former: right.flip(0))


def _written_back(launch: Launch, change: Any) -> Any:
    argument = _written(launch)
    if argument is None or not argument.is_floating_point():
        return launch.run()
    right = _elsewhere(launch)
    flat = change(right.detach().reshape(-1), argument.detach().reshape(-1))
    argument.data.copy_(flat.view(argument.shape))
    return right


@variant(FUNCTIONS)
def input_overwritten_and_returned(launch: Launch) -> Any:
    """A function works in place, though it was not asked to."""
    x = launch.args[0]
    if _written(launch) is not None or not hasattr(torch.Tensor, f"{plain_name(launch.api)}_"):
        return launch.run()
    output = launch.run()
    # Through autograd, so that torch counts the change.
    with torch.no_grad():
        x.copy_(output)
    return output if output.requires_grad else x


@variant(LISTS)
def last_tensor_of_the_list_forgotten(launch: Launch) -> Any:
    """An operation on many tensors leaves the last one as it was."""
    lists = [argument[:-1] if isinstance(argument, (list, tuple)) else argument for argument in launch.args]
    return launch.func(*lists, **launch.kwargs)


@variant("setitem")
def assigned_to_a_copy(launch: Launch) -> Any:
    """An assignment writes to a copy."""
    return launch.run(launch.args[0].clone())


@variant("setitem")
def assigned_one_row_late(launch: Launch) -> Any:
    """An assignment writes to the rows after those that it should."""
    target = launch.args[0]
    rolled = target.detach().roll(-1, 0)
    launch.run(rolled)
    target.data.copy_(rolled.roll(1, 0))


@variant("batch_norm")
def running_variance_not_updated(launch: Launch) -> Any:
    """The running variance stays as it was."""
    variance = launch.argument(2, "running_var")
    former = None if variance is None else variance.clone()
    output = launch.run()
    if variance is not None:
        variance.data.copy_(former)
    return output
