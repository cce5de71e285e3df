"""Plan of a call's blocks: whether it is computed in blocks, how large they are, and which operations can be cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from msprobe_hooks.dump.schema import TensorElement
from pytest_msprobe.engine.replay.call import Call, operation
from pytest_msprobe.engine.replay.calls.arguments import Arguments, build_arguments
from pytest_msprobe.engine.replay.calls.side import may_work_in_place
from pytest_msprobe.engine.replay.ops.convolution_geometry import PARAMETERS
from pytest_msprobe.engine.replay.partition.rules import (
    Cut,
    NamedArgs,
    Rule,
    along,
    basic_index,
    convolution,
    divisor,
    einsum,
    heads,
    is_index,
    linear,
    loss_of_classes,
    loss_of_elements,
    over_channels,
    over_groups,
    over_last,
    over_planes,
    product,
    tensor_in,
    tensors_in,
)
from pytest_msprobe.engine.values.dtypes import dtype_named, golden_float
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.results.skip_reasons import Skip

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

# Parameters whose True is no ``inplace=True``.
_FLAGS = frozenset({"copy", "non_blocking", "is_causal", "enable_gqa"})


def cuts_of(operation: str, arguments: Arguments) -> list[Cut]:
    """Return where a call can be cut; nowhere, mostly."""
    entry = _RULES.get(operation)
    if entry is None:
        return []
    parameters, rule = entry
    named_args = _by_name(parameters, arguments)
    if named_args is None:
        return []
    tensors = tensors_with_paths([arguments.args, arguments.kwargs])
    if any(tensor.layout is not torch.strided or tensor.is_quantized for _, tensor in tensors):
        return []
    if len(tensors_in(named_args)) != len(tensors):
        return []
    floats = [tensor.dtype for _, tensor in tensors if not is_index(tensor)]
    cuts = list(rule(named_args)) if floats and all(dtype in _DTYPES for dtype in floats) else []
    if cuts and may_work_in_place(operation, _without_flags(arguments, named_args)):
        return _in_place(cuts, named_args) if operation in _IN_PLACE else []
    return cuts


def is_product(operation: str) -> bool:
    """Return whether an operation that can be cut sums products: of matrices, or in windows."""
    return operation in _PRODUCTS


def divisor_of(operation: str, arguments: Arguments) -> torch.Tensor | None:
    """Return what a loss divides the sum of its rows or elements by, in float64; None where it is that sum."""
    parameters, _ = _RULES[operation]
    return divisor(_by_name(parameters, arguments) or {})


def _without_flags(arguments: Arguments, named_args: NamedArgs) -> Arguments:
    """Return a call's arguments without those of which is known that they do not ask it to work in place."""
    args = tuple(value for name, (path, value) in named_args.items() if path.startswith("args.") and name not in _FLAGS)
    kwargs = {name: value for name, value in arguments.kwargs.items() if name not in _FLAGS}
    return replace(arguments, args=args, kwargs=kwargs)


def _by_name(parameters: tuple[str, ...], arguments: Arguments) -> NamedArgs | None:
    """Return path and value of each argument by its parameter's name; None where there are more than names."""
    args, kwargs = arguments.args, arguments.kwargs
    if len(args) > len(parameters):
        return None
    positional = {name: (f"args.{i}", value) for i, (name, value) in enumerate(zip(parameters, args, strict=False))}
    return positional | {name: (f"kwargs.{name}", value) for name, value in kwargs.items()}


def _broadcast(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut an elementwise operation along any dimension of its result."""
    tensors = tensors_in(named_args)
    shape = _broadcast_shape(*(tensor.shape for _, tensor in tensors))
    for dim, size in enumerate(shape):
        behind = len(shape) - dim
        inputs = {
            path: tensor.dim() - behind
            for path, tensor in tensors
            if tensor.dim() >= behind and tensor.shape[-behind] == size
        }
        yield Cut(shape, dim, inputs)


def _in_place(cuts: list[Cut], named_args: NamedArgs) -> list[Cut]:
    """Return the cuts of an elementwise operation that writes to its input; none where its output is another one."""
    operand = tensor_in(named_args, "input")
    if operand is None or operand[1].shape != cuts[0].shape or "out" in named_args:
        return []
    return [replace(cut, written=(operand[0],)) for cut in cuts]


def _alike(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut a cast or a copy along any dimension, and what it is made like with it where that has the same shape."""
    operand = tensor_in(named_args, "input")
    if operand is None:
        return
    shape = tuple(operand[1].shape)
    for dim in range(len(shape)):
        yield Cut(shape, dim, {path: dim for path, tensor in tensors_in(named_args) if tensor.shape == shape})


def _broadcast_shape(*shapes: torch.Size) -> tuple[int, ...]:
    """Return what shapes broadcast to; an empty one where they do not."""
    dims = max(map(len, shapes), default=0)
    padded = [(1,) * (dims - len(shape)) + tuple(shape) for shape in shapes]
    distinct = [{size for size in sizes if size != 1} for sizes in zip(*padded, strict=True)]
    return (
        tuple(max(extents, default=1) for extents in distinct) if all(len(extents) <= 1 for extents in distinct) else ()
    )


def _columns_of_weights(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut an embedding by columns of its weights, of which each row that is read has a part in every block."""
    index, weight = tensor_in(named_args, "input"), tensor_in(named_args, "weight")
    if index is None or weight is None or weight[1].dim() != 2 or not is_index(index[1]):
        return
    if any(named_args.get(name, ("", None))[1] for name in ("max_norm", "sparse")):
        return
    shape = (*index[1].shape, weight[1].shape[1])
    yield Cut(shape, len(shape) - 1, {weight[0]: 1}, is_feature=True)


def _rows(names: str, parameters: str, rule: Rule) -> dict[str, tuple[tuple[str, ...], Rule]]:
    return {name: (tuple(parameters.split()), rule) for name in names.split()}


_PRODUCTS: Mapping[str, tuple[tuple[str, ...], Rule]] = {
    **_rows("linear", "input weight bias", linear),
    **_rows("matmul __matmul__", "input other", product("input", "other")),
    **_rows("mm bmm", "input mat2", product("input", "mat2")),
    **_rows("addmm", "input mat1 mat2", product("mat1", "mat2", "input")),
    **_rows("baddbmm", "input batch1 batch2", product("batch1", "batch2", "input")),
    **_rows("einsum", "equation first second third fourth", einsum),
    **{name: (parameters, convolution(name)) for name, parameters in PARAMETERS.items()},
    **_rows("scaled_dot_product_attention", "query key value attn_mask dropout_p is_causal scale enable_gqa", heads),
}

# They write their result to their input, the last ones where their second argument, ``inplace``, asks for it.
_IN_PLACE = (
    "abs_ add_ div_ exp_ log_ mul_ neg_ pow_ reciprocal_ relu_ rsqrt_ sigmoid_ sqrt_ square_ sub_ tanh_"
    " __iadd__ __imul__ __isub__ __itruediv__ relu silu"
).split()

_RULES: Mapping[str, tuple[tuple[str, ...], Rule]] = {
    **_PRODUCTS,
    **_rows("embedding", "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", _columns_of_weights),
    **_rows("softmax log_softmax", "input dim _stacklevel dtype", along),
    **_rows("layer_norm", "input normalized_shape weight bias eps", over_last),
    **_rows("rms_norm", "input normalized_shape weight eps", over_last),
    **_rows("group_norm", "input num_groups weight bias eps", over_groups),
    **_rows(
        "instance_norm",
        "input running_mean running_var weight bias use_input_stats momentum eps",
        over_planes,
    ),
    **_rows("batch_norm", "input running_mean running_var weight bias training momentum eps", over_channels),
    **_rows("__getitem__", "input index", basic_index),
    **_rows("bfloat16 clone contiguous double float half", "input memory_format", _alike),
    **_rows("to", "input dtype non_blocking copy memory_format", _alike),
    **_rows("type", "input dtype non_blocking", _alike),
    **_rows("type_as", "input other", _alike),
    **_rows(
        "cross_entropy",
        "input target weight size_average ignore_index reduce reduction label_smoothing",
        loss_of_classes,
    ),
    **_rows("nll_loss", "input target weight size_average ignore_index reduce reduction", loss_of_classes),
    **_rows("mse_loss l1_loss", "input target size_average reduce reduction weight", loss_of_elements),
    **_rows("smooth_l1_loss", "input target size_average reduce reduction beta", loss_of_elements),
    **_rows("huber_loss", "input target reduction delta weight", loss_of_elements),
    **_rows(
        "binary_cross_entropy_with_logits",
        "input target weight size_average reduce reduction pos_weight",
        loss_of_elements,
    ),
    **_rows(
        "abs add div exp gelu log maximum minimum mul neg pow reciprocal rsqrt sigmoid sqrt square sub tanh"
        " true_divide where __add__ __mul__ __neg__ __pow__ __radd__ __rmul__ __rsub__ __rtruediv__ __sub__"
        " __truediv__",
        "input other third",
        _broadcast,
    ),
    **_rows(" ".join(_IN_PLACE), "input other", _broadcast),
}


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
