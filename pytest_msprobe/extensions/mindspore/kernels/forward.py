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
    activation,
    layout,
    loss,
    normalization,
    reductions,
)
from pytest_msprobe.extensions.mindspore.primitives import matmul as products

_FORMATS = {0: "NCHW", 1: "NHWC", 14: "NCDHW"}

MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def on_elements(function: Callable[..., Any]) -> Callable[[KernelCall], Any]:
    """Return a kernel that computes each element of its result from one of each of its inputs."""
    return lambda given: function(*map(given.like_result, range(len(given.inputs))))


def matmul(given: KernelCall) -> Tensor:
    """Return MatMul."""
    rows, columns = given.shape
    transposes = given.setting("transpose_a", 2), given.setting("transpose_b", 3)
    x = given.tensor(0, *((-1, rows) if transposes[0] else (rows, -1)))
    y = given.tensor(1, *((columns, -1) if transposes[1] else (-1, columns)))
    return products.matmul(x, y, transpose_a=transposes[0], transpose_b=transposes[1])


def batch_matmul(given: KernelCall) -> Tensor:
    """Return BatchMatMul, of which one operand may be shared by the whole batch."""
    *batch, rows, columns = given.shape
    transposes = given.setting("transpose_a", 2), given.setting("transpose_b", 3)
    count, sizes = math.prod(batch), [given.tensor(slot).numel() for slot in (0, 1)]
    # How many matrices each operand has.
    for matrices in ((count, count), (count, 1), (1, count)):
        inner = sizes[0] // (matrices[0] * rows)
        if sizes != [matrices[0] * rows * inner, matrices[1] * inner * columns]:
            continue
        first = (inner, rows) if transposes[0] else (rows, inner)
        second = (columns, inner) if transposes[1] else (inner, columns)
        batches = [batch if each == count else [] for each in matrices]
        x, y = given.tensor(0, *batches[0], *first), given.tensor(1, *batches[1], *second)
        return products.matmul(x, y, transpose_a=transposes[0], transpose_b=transposes[1])
    raise given.lacks("the shape of input.0")


def bias_add(given: KernelCall) -> Tensor:
    """Return BiasAdd."""
    return products.bias_add(given.like_result(0), given.tensor(1), data_format=_FORMATS[given.setting("format", 2)])


def reduction(function: Callable[..., Tensor]) -> Callable[[KernelCall], Tensor]:
    """Return a reduction, of all axes where none is named."""
    reduce = reductions.reduction(function)

    def compute(given: KernelCall) -> Tensor:
        axes = given.setting("axis", 1) if given.knows(1) else []
        axes, keep_dims = [axes] if isinstance(axes, int) else list(axes), bool(given.setting("keep_dims", 2))
        return reduce(_reduced(given, axes, keep_dims), axes, keep_dims=keep_dims)

    return compute


def _reduced(given: KernelCall, axes: list[int], keep_dims: bool) -> Tensor:
    """Return what is reduced in its shape: that of the result, with the axis as long as the elements say."""
    x = given.tensor(0)
    if not axes:
        return x.reshape(-1)
    if len(axes) > 1:
        return x
    shape = list(given.shape)
    axis = axes[0] % (len(shape) if keep_dims else len(shape) + 1)
    length = x.numel() // math.prod(shape)
    shape[axis : axis + 1 if keep_dims else axis] = [length]
    return given.tensor(0, *shape)


def along_axis(function: Callable[..., Tensor]) -> Callable[[KernelCall], Tensor]:
    """Return a function along an axis, whose result has the shape of what it was given."""
    return lambda given: function(given.tensor(0, *given.shape), axis=given.setting("axis", 1))


softmax, log_softmax = along_axis(activation.softmax), along_axis(activation.log_softmax)


def layer_norm(given: KernelCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return LayerNorm, the mean and the variance."""
    names = ("begin_norm_axis", "begin_params_axis", "epsilon")
    settings = {name: given.setting(name, slot) for slot, name in enumerate(names, start=3)}
    return normalization.layer_norm(given.tensor(0, *given.shape), given.tensor(1), given.tensor(2), **settings)


def group_norm(given: KernelCall) -> tuple[Tensor, Tensor, Tensor]:
    """Return GroupNorm, and the mean and the reciprocal deviation of each group."""
    groups, epsilon = given.setting("num_groups", 1), given.setting("eps", 4)
    return normalization.group_norm(given.tensor(0, *given.shape), groups, given.tensor(2), given.tensor(3), epsilon)


def sparse_softmax_cross_entropy(given: KernelCall) -> Tensor:
    """Return SparseSoftmaxCrossEntropyWithLogits, or its gradient, which has as many elements as the logits."""
    logits = given.tensor(0)
    is_grad = math.prod(given.shape) == logits.numel()
    return loss.sparse_softmax_cross_entropy(logits, given.tensor(1).reshape(-1), is_grad=is_grad)


def fill(given: KernelCall) -> Tensor:
    """Return FillV2: one value everywhere."""
    return given.tensor(1).reshape(()).expand(given.shape)


def elements(given: KernelCall) -> Tensor:
    """Return the elements as they come: Reshape and its kin."""
    return given.tensor(0)


def cast(given: KernelCall) -> Tensor:
    """Return the input in the dtype of the result; a float stays as exact as it is."""
    dtype = given.results[0].dtype
    x = given.tensor(0)
    return x if dtype.is_floating_point and x.is_floating_point() else x.to(dtype)


def transpose(given: KernelCall) -> Tensor:
    """Return Transpose; where its permutation is not known, by the only one that turns the one shape into the other."""
    x = given.tensor(0)
    if given.knows(1):
        return x.permute(given.setting("input_perm", 1))
    sizes = [size for size in given.shape if size > 1]
    if len(set(sizes)) < len(sizes) or sorted(x.shape) != sorted(given.shape):
        raise given.lacks("input_perm")
    places = list(x.shape)
    order = []
    for size in given.shape:
        order.append(places.index(size))
        places[order[-1]] = -1
    return x.permute(order)


def concat(given: KernelCall) -> Tensor:
    """Return Concat; the axis comes behind the tensors."""
    *parts, last = given.tensors()
    axis = int(last)
    axis %= len(given.shape)
    others = math.prod(given.shape) // given.shape[axis]
    sized = ((*given.shape[:axis], part.numel() // others, *given.shape[axis + 1 :]) for part in parts)
    return layout.concat(*(part.reshape(shape) for part, shape in zip(parts, sized, strict=True)), axis=axis)


def split(given: KernelCall) -> tuple[Tensor, ...]:
    """Return Split into equal parts."""
    axis = given.setting("axis", 1) % len(given.shape)
    whole = (*given.shape[:axis], given.shape[axis] * len(given.results), *given.shape[axis + 1 :])
    return layout.split(given.tensor(0, *whole), axis=axis, output_num=len(given.results))


def slice_of(given: KernelCall) -> Tensor:
    """Return Slice."""
    return _shaped(given, layout.slice_of(given.tensor(0), given.setting("begin", 1), given.setting("size", 2)))


def strided_slice(given: KernelCall) -> Tensor:
    """Return StridedSlice."""
    masks = {name: given.setting(name, slot) for slot, name in enumerate(MASKS, start=4)}
    bounds = [given.setting(name, slot) for slot, name in enumerate(("begin", "end", "strides"), start=1)]
    return _shaped(given, layout.strided_slice(given.tensor(0), *bounds, **masks))


def _shaped(given: KernelCall, found: Tensor) -> Tensor:
    """Return what was cut out of an input. Raises Skip where its shape shows that the input had another one."""
    if tuple(found.shape) != given.shape:
        raise given.lacks("the shape of input.0")
    return found


def gather(given: KernelCall) -> Tensor:
    """Return Gather along an axis."""
    axis, batch_dims = given.setting("axis", 2), given.setting("batch_dims", 3)
    return layout.gather(given.tensor(0), given.tensor(1), axis, batch_dims=batch_dims)


def gather_elements(given: KernelCall) -> Tensor:
    """Return GatherD."""
    return given.tensor(0).gather(given.setting("dim", 1), given.tensor(2, *given.shape).long())


def segment_sum(given: KernelCall) -> Tensor:
    """Return UnsortedSegmentSum: rows of equal numbers, summed."""
    ids = given.tensor(1).reshape(-1).long()
    rows = given.tensor(0, ids.numel(), *given.shape[1:])
    return rows.new_zeros(given.shape).index_add_(0, ids, rows)


def tile(given: KernelCall) -> Tensor:
    """Return Tile."""
    multiples = given.setting("multiples", 1)
    repeated = [1] * (len(given.shape) - len(multiples)) + list(multiples)
    return given.tensor(0, *(size // n for size, n in zip(given.shape, repeated, strict=True))).tile(multiples)


def add_n(given: KernelCall) -> Tensor:
    """Return AddN."""
    return activation.add_n(*(given.like_result(slot) for slot in range(len(given.inputs))))


def dropout(given: KernelCall) -> tuple[Tensor, Tensor]:
    """Return what Dropout makes of its input with the mask that was recorded: kept elements over their probability."""
    x, mask = given.like_result(0), given.results[1]
    return x * mask.to(x.dtype).reshape(given.shape) / given.tensor(1), mask


def assign(given: KernelCall) -> Tensor:
    """Return Assign: what was written."""
    return given.tensor(1)
