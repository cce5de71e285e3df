"""Plan of a call's blocks: whether it is computed in blocks, and how large they are."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.arguments import Arguments, build_arguments
from pytest_msprobe.engine.replay.calls.side import FLAGS, may_work_in_place
from pytest_msprobe.engine.replay.ops.cuts import Cut, NamedArgs, block_of, divisor, is_index, tensor_in, tensors_in
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.values.dtypes import dtype_named, golden_float
from pytest_msprobe.engine.values.pytree import map_with_paths, tensors_with_paths
from pytest_msprobe.results.outcomes import Skip

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

#: Raised copies of fewer bytes are made whole. They are about what Python and torch take themselves, and a product of
#: which they are made takes less than a second; blocks run the forward call again for gradients.
RAISED_ABOVE = 256 * 2**20

# Of what is cut, raised, and its result. Products of such blocks are as fast as whole ones.
_BLOCK = 64 * 2**20

# Other operations take so many times less of both. Fresh memory costs them more than what they compute, and a block of
# this size takes that of the one before, which the processor still has at hand.
_LESS = 8

# For convolutions of float64, which oneDNN does not have, torch lays the windows of all samples side by side.
_LAID_OUT = torch.float64.itemsize

# Blocks raised and in golden's graph, with their gradients, those of the baseline, and what operations work with.
_BLOCKS_AT_ONCE = 6


def cuts_of(operation: str, arguments: Arguments) -> list[Cut]:
    """Return where a call can be cut; nowhere, mostly."""
    blocks = op_info(operation).blocks
    if blocks is None:
        return []
    named_args = _by_name(blocks.parameters, arguments)
    if named_args is None:
        return []
    tensors = tensors_with_paths([arguments.args, arguments.kwargs])
    if any(tensor.layout is not torch.strided or tensor.is_quantized for _, tensor in tensors):
        return []
    if len(tensors_in(named_args)) != len(tensors):
        return []
    floats = [tensor.dtype for _, tensor in tensors if not is_index(tensor)]
    cuts = list(blocks.rule(named_args)) if floats and all(dtype in _DTYPES for dtype in floats) else []
    if cuts and may_work_in_place(operation, _without_flags(arguments, named_args)):
        return _in_place(cuts, named_args) if blocks.in_place else []
    return cuts


def divisor_of(operation: str, arguments: Arguments) -> torch.Tensor | None:
    """Return what a loss divides the sum of its rows or elements by, in float64; None where it is that sum."""
    blocks = op_info(operation).blocks
    assert blocks is not None
    return divisor(_by_name(blocks.parameters, arguments) or {})


def arguments_of_block(cut: Cut, arguments: Arguments, start: int, size: int) -> Arguments:
    """Return the arguments of a block: dense parts of what is cut."""

    def part(path: str, leaf: Any) -> Any:
        dim = cut.inputs.get(path)
        return leaf if dim is None else block_of(leaf, dim, start, size)

    args = map_with_paths(part, arguments.args, "args")
    kwargs = map_with_paths(part, arguments.kwargs, "kwargs") | ({"reduction": "sum"} if cut.is_reduced else {})
    return replace(arguments, args=args, kwargs=kwargs, tied=frozenset())


def _without_flags(arguments: Arguments, named_args: NamedArgs) -> Arguments:
    """Return a call's arguments without those of which is known that they do not ask it to work in place."""
    args = (value for name, (path, value) in named_args.items() if path.startswith("args.") and name not in FLAGS)
    return replace(arguments, args=tuple(args))


def _by_name(parameters: str, arguments: Arguments) -> NamedArgs | None:
    """Return path and value of each argument by its parameter's name; None where there are more than names."""
    names, args, kwargs = parameters.split(), arguments.args, arguments.kwargs
    if len(args) > len(names):
        return None
    positional = {name: (f"args.{i}", value) for i, (name, value) in enumerate(zip(names, args, strict=False))}
    return positional | {name: (f"kwargs.{name}", value) for name, value in kwargs.items()}


def _in_place(cuts: list[Cut], named_args: NamedArgs) -> list[Cut]:
    """Return the cuts of an elementwise operation that writes to its input; none where its output is another one."""
    operand = tensor_in(named_args, "input")
    if operand is None or operand[1].shape != cuts[0].shape or "out" in named_args:
        return []
    return [replace(cut, written=(operand[0],)) for cut in cuts]


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
    blocks = op_info(name).blocks
    assert blocks is not None
    share = 1 if blocks.is_product else _LESS
    if (sum(sizes.values()) + result) * directions <= above * blocks.whole_times / share:
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
