"""Kernels that a forward pass runs, by the definitions of the primitives, of which they are what a device runs.

A backward pass consists of most of them as well. Where a kernel is only about places, its elements are judged as they
come, whatever shape they have.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from pytest_msprobe.extensions.mindspore.kernels.kernel_call import KernelCall
from pytest_msprobe.extensions.mindspore.primitives import (
    axes,
    layers,
)

_FORMATS = {0: "NCHW", 1: "NHWC", 14: "NCDHW"}

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def on_elements(function: Callable[..., Any]) -> Callable[[KernelCall], Any]:
    """Return a kernel that computes each element of its result from one of each of its inputs."""
    return lambda call: function(*map(call.like_result, range(len(call.inputs))))


def matmul(call: KernelCall) -> Tensor:
    """Return MatMul."""
    rows, columns = call.shape
    transposes = call.setting("transpose_a", 2), call.setting("transpose_b", 3)
    x = call.tensor(0, *((-1, rows) if transposes[0] else (rows, -1)))
    y = call.tensor(1, *((columns, -1) if transposes[1] else (-1, columns)))
    return layers.matmul(x, y, transpose_a=transposes[0], transpose_b=transposes[1])


def batch_matmul(call: KernelCall) -> Tensor:
    """Return BatchMatMul, of which one operand may be shared by the whole batch."""
    *batch, rows, columns = call.shape
    transposes = call.setting("transpose_a", 2), call.setting("transpose_b", 3)
    count, sizes = math.prod(batch), [call.tensor(slot).numel() for slot in (0, 1)]
    # How many matrices each operand has.
    for matrices in ((count, count), (count, 1), (1, count)):
        inner = sizes[0] // (matrices[0] * rows)
        if sizes != [matrices[0] * rows * inner, matrices[1] * inner * columns]:
            continue
        first = (inner, rows) if transposes[0] else (rows, inner)
        second = (columns, inner) if transposes[1] else (inner, columns)
        batches = [batch if number == count else [] for number in matrices]
        x, y = call.tensor(0, *batches[0], *first), call.tensor(1, *batches[1], *second)
        return layers.matmul(x, y, transpose_a=transposes[0], transpose_b=transposes[1])
    raise call.lacks("the shape of input.0")


def bias_add(call: KernelCall) -> Tensor:
    """Return BiasAdd."""
    return layers.bias_add(call.like_result(0), call.tensor(1), data_format=_FORMATS[call.setting("format", 2)])


def reduction(function: Callable[..., Tensor]) -> Callable[[KernelCall], Tensor]:
    """Return a reduction, of all axes where none is named."""
    reduce = axes.reduction(function)

    def compute(call: KernelCall) -> Tensor:
        axes = call.setting("axis", 1) if call.knows(1) else []
        axes, keep_dims = [axes] if isinstance(axes, int) else list(axes), bool(call.setting("keep_dims", 2))
        return reduce(_reduced(call, axes, keep_dims), axes, keep_dims=keep_dims)

    return compute


def _reduced(call: KernelCall, axes: list[int], keep_dims: bool) -> Tensor:
    """Return what is reduced in its shape: that of the result, with the axis as long as the elements say."""
    x = call.tensor(0)
    if not axes:
        return x.reshape(-1)
    if len(axes) > 1:
        return x
    shape = list(call.shape)
    axis = axes[0] % (len(shape) if keep_dims else len(shape) + 1)
    length = x.numel() // math.prod(shape)
    shape[axis : axis + 1 if keep_dims else axis] = [length]
    return call.tensor(0, *shape)


def along_axis(function: Callable[..., Tensor]) -> Callable[[KernelCall], Tensor]:
    """Return a function along an axis, whose result has the shape of what it was given."""
    return lambda call: function(call.tensor(0, *call.shape), axis=call.setting("axis", 1))


softmax, log_softmax = along_axis(layers.softmax), along_axis(layers.log_softmax)


def layer_norm(call: KernelCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return LayerNorm, the mean and the variance."""
    names = ("begin_norm_axis", "begin_params_axis", "epsilon")
    settings = {name: call.setting(name, slot) for slot, name in enumerate(names, start=3)}
    return layers.layer_norm(call.tensor(0, *call.shape), call.tensor(1), call.tensor(2), **settings)


def group_norm(call: KernelCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return GroupNorm, and the mean and the reciprocal deviation of each group."""
    groups, epsilon = call.setting("num_groups", 1), call.setting("eps", 4)
    return layers.group_norm(call.tensor(0, *call.shape), groups, call.tensor(2), call.tensor(3), epsilon)


def sparse_softmax_cross_entropy(call: KernelCall) -> Tensor:
    """Return SparseSoftmaxCrossEntropyWithLogits, or its gradient, which has as many elements as the logits."""
    logits = call.tensor(0)
    is_grad = math.prod(call.shape) == logits.numel()
    return layers.sparse_softmax_cross_entropy(logits, call.tensor(1).reshape(-1), is_grad=is_grad)


def fill(call: KernelCall) -> Tensor:
    """Return FillV2: one value everywhere."""
    return call.tensor(1).reshape(()).expand(call.shape)


def elements(call: KernelCall) -> Tensor:
    """Return the elements as they come: Reshape and its kin."""
    return call.tensor(0)


def cast(call: KernelCall) -> Tensor:
    """Return the input in the dtype of the result; a float stays as exact as it is."""
    dtype = call.results[0].dtype
    x = call.tensor(0)
    return x if dtype.is_floating_point and x.is_floating_point() else x.to(dtype)


def transpose(call: KernelCall) -> Tensor:
    """Return Transpose; where its permutation is not known, by the only one that turns the one shape into the other."""
    x = call.tensor(0)
    if call.knows(1):
        return x.permute(call.setting("input_perm", 1))
    sizes = [size for size in call.shape if size > 1]
    if len(set(sizes)) < len(sizes) or sorted(x.shape) != sorted(call.shape):
        raise call.lacks("input_perm")
    places = list(x.shape)
    order = []
    for size in call.shape:
        order.append(places.index(size))
        places[order[-1]] = -1
    return x.permute(order)


def concat(call: KernelCall) -> Tensor:
    """Return Concat; the axis comes behind the tensors."""
    *parts, last = call.tensors()
    axis = int(last)
    axis %= len(call.shape)
    others = math.prod(call.shape) // call.shape[axis]
    sized = ((*call.shape[:axis], part.numel() // others, *call.shape[axis + 1 :]) for part in parts)
    return axes.concat(*(part.reshape(shape) for part, shape in zip(parts, sized, strict=True)), axis=axis)


def split(call: KernelCall) -> tuple[Tensor, ...]:
    """Return Split into equal parts."""
    axis = call.setting("axis", 1) % len(call.shape)
    whole = (*call.shape[:axis], call.shape[axis] * len(call.results), *call.shape[axis + 1 :])
    return axes.split(call.tensor(0, *whole), axis=axis, output_num=len(call.results))


def slice_of(call: KernelCall) -> Tensor:
    """Return Slice."""
    return _shaped(call, axes.slice_of(call.tensor(0), call.setting("begin", 1), call.setting("size", 2)))


def strided_slice(call: KernelCall) -> Tensor:
    """Return StridedSlice."""
    masks = {name: call.setting(name, slot) for slot, name in enumerate(MASKS, start=4)}
    bounds = [call.setting(name, slot) for slot, name in enumerate(("begin", "end", "strides"), start=1)]
    return _shaped(call, axes.strided_slice(call.tensor(0), *bounds, **masks))


def _shaped(call: KernelCall, result: Tensor) -> Tensor:
    """Return what was cut out of an input. Raises Skip where its shape shows that the input had another one."""
    if tuple(result.shape) != call.shape:
        raise call.lacks("the shape of input.0")
    return result


def gather(call: KernelCall) -> Tensor:
    """Return Gather along an axis."""
    axis, batch_dims = call.setting("axis", 2), call.setting("batch_dims", 3)
    return axes.gather(call.tensor(0), call.tensor(1), axis, batch_dims=batch_dims)


def gather_elements(call: KernelCall) -> Tensor:
    """Return GatherD."""
    return call.tensor(0).gather(call.setting("dim", 1), call.tensor(2, *call.shape).long())


def segment_sum(call: KernelCall) -> Tensor:
    """Return UnsortedSegmentSum: rows of equal numbers, summed."""
    ids = call.tensor(1).reshape(-1).long()
    rows = call.tensor(0, ids.numel(), *call.shape[1:])
    return rows.new_zeros(call.shape).index_add_(0, ids, rows)


def tile(call: KernelCall) -> Tensor:
    """Return Tile."""
    multiples = call.setting("multiples", 1)
    repeated = [1] * (len(call.shape) - len(multiples)) + list(multiples)
    return call.tensor(0, *(size // n for size, n in zip(call.shape, repeated, strict=True))).tile(multiples)


def add_n(call: KernelCall) -> Tensor:
    """Return AddN."""
    return layers.add_n(*(call.like_result(slot) for slot in range(len(call.inputs))))


def dropout(call: KernelCall) -> tuple[Tensor, Tensor]:
    """Return what Dropout makes of its input with the mask that was recorded: kept elements over their probability."""
    x, mask = call.like_result(0), call.results[1]
    return x * mask.to(x.dtype).reshape(call.shape) / call.tensor(1), mask


def assign(call: KernelCall) -> Tensor:
    """Return Assign: what was written."""
    return call.tensor(1)
