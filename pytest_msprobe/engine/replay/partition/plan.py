"""Whether a call is computed in blocks, and how large they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.arguments import Arguments, build_arguments
from pytest_msprobe.engine.replay.partition.cut import Cut
from pytest_msprobe.engine.replay.partition.table import cuts_of, is_product
from pytest_msprobe.engine.values.dtypes import dtype_named, golden_float
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.skip_reasons import Skip

#: Raised copies of fewer bytes are made whole. They are about what Python and torch take themselves, and a product of
#: which they are made takes less than a second; blocks run the forward call again for gradients.
RAISED_ABOVE = 256 * 2**20

# Of what is cut, raised, and its result. Products of such blocks are as fast as whole ones.
_BLOCK = 64 * 2**20

# Other operations take so many times less of both. Fresh memory costs them more than what they compute, and a block of
# this size takes that of the one before, which the processor still has at hand.
_LESS = 8

# Attention computes more for each byte, and its blocks make the forward pass twice more: it stays whole up to so many
# times as much.
_WHOLE_TIMES = {"scaled_dot_product_attention": 4}

# For convolutions of float64, which oneDNN does not have, torch lays the windows of all samples side by side.
_LAID_OUT = torch.float64.itemsize

# Blocks raised and in golden's graph, with their gradients, those of the baseline, and what operations work with.
_BLOCKS_AT_ONCE = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """A cut, how many slices a block has, and how many bytes golden takes in addition to the target's own tensors.

    ``window_bytes``: how many more bytes golden of the whole takes than its raised tensors have.
    """

    cut: Cut
    size: int
    working_bytes: int
    window_bytes: int = 0


def plan_of_call(call: Call, above: float) -> Plan | None:
    """Return how to compute a recorded call in blocks, by its shapes and dtypes; None as for `plan_of`."""
    try:
        arguments = build_arguments(call, seed=0, real_data=False, source=_without_memory, memory="given")
    except (Skip, RuntimeError, TypeError):
        # What cannot be rebuilt is reported where it is.
        return None
    return plan_of(operation(call.api), arguments, differentiates=call.backward is not None, above=above)


def _without_memory(element: TensorElement, path: str) -> torch.Tensor:
    return torch.empty(element.shape, dtype=dtype_named(element.dtype), device="meta")


def plan_of(name: str, arguments: Arguments, *, differentiates: bool, above: float = RAISED_ABOVE) -> Plan | None:
    """Return how to compute a call in blocks; None where it cannot be cut, or is raised to no more than so many bytes.

    ``above`` is that of products; attention is cut from four times as much on, others from an eighth. The cut is the
    first of those that leave a block's worth whole, else the one that leaves least.
    """
    cuts = [cut for cut in cuts_of(name, arguments) if cut.length > 1]
    tensors = dict(_tensors(arguments))
    if not cuts:
        return None
    wide = golden_float(tensor.dtype for tensor in tensors.values()).itemsize
    windows = cuts[0].windows if wide == _LAID_OUT else {}
    sizes = {
        path: (tensor.numel() + windows.get(path, 0)) * wide
        for path, tensor in tensors.items()
        if tensor.is_floating_point()
    }
    result = math.prod(cuts[0].shape) * wide
    directions = 2 if differentiates else 1
    share = 1 if is_product(name) else _LESS
    if (sum(sizes.values()) + result) * directions <= above * _WHOLE_TIMES.get(name, 1) / share:
        return None
    block = _BLOCK // share

    def left_whole(cut: Cut) -> int:
        return sum(size for path, size in sizes.items() if path not in cut.inputs)

    def per_slice(cut: Cut) -> float:
        return (sum(sizes.values()) - left_whole(cut) + result) / cut.length

    cut = min(cuts, key=lambda cut: max(block, left_whole(cut) + per_slice(cut)))
    slices = min(cut.length, max(1, int(block / max(1.0, per_slice(cut)))))
    # What a call writes to is not shared with what was drawn.
    copied = sum(tensors[path].numel() * tensors[path].itemsize for path in cut.written)
    working = copied + directions * left_whole(cut) + _BLOCKS_AT_ONCE * max(block, per_slice(cut))
    return Plan(cut, slices, round(working), sum(windows.values()) * wide)


def _tensors(arguments: Arguments) -> list[tuple[str, torch.Tensor]]:
    return [*tensors_with_paths(arguments.args, "args"), *tensors_with_paths(arguments.kwargs, "kwargs")]
