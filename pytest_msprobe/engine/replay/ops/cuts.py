"""Rules that cut large calls into blocks: matrix products, convolutions, losses, reductions, elementwise calls."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from pytest_msprobe.engine.replay.ops.convolution_geometry import convolution_call

# The class that losses leave out by default.
_IGNORED = -100


@dataclass(frozen=True, slots=True)
class Cut:
    """Cut of a call along ``dim`` of its only result, of this ``shape``, and of each argument in ``inputs``, by path.

    A block takes the same range of all of them, and every other argument whole. So the gradient of a cut argument is
    cut as it is, and that of a whole one is the sum over the blocks. The call may write to those in ``written``.

    ``is_reduced``: of a result of this shape the call makes one number, by its argument ``reduction``. A block gives
    the sum of its part. ``windows``: how many elements the windows on an argument have, by its path.
    ``is_feature``: the slices are features, such as columns of a weight, and no rows of a batch.
    """

    shape: tuple[int, ...]
    dim: int
    inputs: Mapping[str, int]
    written: tuple[str, ...] = ()
    is_reduced: bool = False
    windows: Mapping[str, int] = field(default_factory=dict)
    is_feature: bool = False

    @property
    def result(self) -> tuple[int, ...]:
        """The shape of what the call returns."""
        return () if self.is_reduced else self.shape

    @property
    def length(self) -> int:
        """Return how many slices there are, of which a block has at least one."""
        return self.shape[self.dim]

    def ranges(self, size: int) -> Iterator[tuple[int, int]]:
        """Yield start and length of each block of at most ``size`` slices."""
        for start in range(0, self.length, size):
            yield start, min(size, self.length - start)


def block_of(tensor: torch.Tensor, dim: int, start: int, size: int) -> torch.Tensor:
    """Return a part of a tensor, as a view where its elements lie side by side."""
    part = tensor.detach().narrow(dim, start, size)
    # A copy that keeps strides would be as large as the tensor.
    return part if dim == 0 and tensor.is_contiguous() else part.contiguous()


#: Path and value of each argument by its parameter's name.
NamedArgs: TypeAlias = Mapping[str, tuple[str, Any]]

#: Gives the cuts of a call.
Rule: TypeAlias = Callable[[NamedArgs], Iterator[Cut]]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cuts of large calls of an operation: its rule, and its parameters' names in order, separated by blanks.

    ``is_product`` says that it sums products, of matrices or in windows; ``in_place`` that it may write its result to
    its input. It stays whole up to ``whole_times`` as many bytes as other operations of its kind.
    """

    rule: Rule
    parameters: str
    is_product: bool = False
    in_place: bool = False
    whole_times: int = 1


def is_index(tensor: torch.Tensor) -> bool:
    """Return whether a tensor holds whole numbers that may be indices, or bools."""
    return tensor.dtype in (torch.int64, torch.int32, torch.bool)


def tensors_in(named_args: NamedArgs) -> list[tuple[str, torch.Tensor]]:
    """Return paths and values of the arguments that are tensors."""
    return [(path, value) for path, value in named_args.values() if isinstance(value, torch.Tensor)]


def tensor_in(named_args: NamedArgs, name: str) -> tuple[str, torch.Tensor] | None:
    """Return path and value of an argument that is a tensor; None of any other."""
    path, value = named_args.get(name, ("", None))
    return (path, value) if isinstance(value, torch.Tensor) else None


def linear(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut a linear layer by rows of its input, or by rows of its weight and its bias with them."""
    left, right, bias = (tensor_in(named_args, name) for name in ("input", "weight", "bias"))
    if left is None or right is None or right[1].dim() != 2 or left[1].dim() < 2:
        return
    if left[1].shape[-1] != right[1].shape[1]:
        return
    shape = (*left[1].shape[:-1], right[1].shape[0])
    for dim in range(len(shape) - 1):
        yield Cut(shape, dim, {left[0]: dim})
    weights = {right[0]: 0} | ({} if bias is None else {bias[0]: 0})
    yield Cut(shape, len(shape) - 1, weights, is_feature=True)


def product(left: str, right: str, added: str = "") -> Rule:
    """Return the rule of a matrix product: cut by rows of the left factor, columns of the right one, or the batch."""

    def cuts(named_args: NamedArgs) -> Iterator[Cut]:
        ours, theirs, more = (tensor_in(named_args, name) for name in (left, right, added))
        if ours is None or theirs is None or min(ours[1].dim(), theirs[1].dim()) < 2:
            return
        a, b = ours[1], theirs[1]
        if a.shape[-1] != b.shape[-2] or (b.dim() != 2 and a.shape[:-2] != b.shape[:-2]):
            return
        shape = (*a.shape[:-1], b.shape[-1])
        batch = len(shape) - 2 if b.dim() != 2 else 0
        for dim in range(len(shape)):
            inputs = {} if dim == len(shape) - 1 else {ours[0]: dim}
            if dim < batch or dim == len(shape) - 1:
                inputs[theirs[0]] = min(dim, b.dim() - 1)
            if more is not None:
                behind = len(shape) - dim
                if more[1].dim() >= behind and more[1].shape[-behind] == shape[dim]:
                    inputs[more[0]] = more[1].dim() - behind
            yield Cut(shape, dim, inputs, is_feature=dim == len(shape) - 1)

    return cuts


def einsum(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut an einsum along any letter of its result."""
    match = re.fullmatch(
        r"([a-zA-Z]+(?:,[a-zA-Z]+)*)(?:->([a-zA-Z]*))?", str(named_args["equation"][1]).replace(" ", "")
    )
    if match is None:
        return
    operands, result = match[1].split(","), match[2]
    letters = "".join(operands)
    result = "".join(sorted(letter for letter in letters if letters.count(letter) == 1)) if result is None else result
    tensors = tensors_in(named_args)
    # A letter that an operand has twice is a diagonal.
    if len(tensors) != len(operands) or any(len({*term}) != len(term) for term in (*operands, result)):
        return
    sizes: dict[str, int] = {}
    for words, (_, tensor) in zip(operands, tensors, strict=True):
        if len(words) != tensor.dim():
            return
        if any(sizes.setdefault(letter, size) != size for letter, size in zip(words, tensor.shape, strict=True)):
            return
    if not {*result} <= sizes.keys():
        return
    shape = tuple(sizes[letter] for letter in result)
    # The operands with the result's first letter hold the batch, whichever place they have.
    batched = "".join(words for words in operands if result[:1] in words)
    for dim, letter in enumerate(result):
        of = zip(operands, tensors, strict=True)
        inputs = {path: words.index(letter) for words, (path, _) in of if letter in words}
        yield Cut(shape, dim, inputs, is_feature=letter not in batched)


def heads(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut (..., L, E) along a dimension before the last two that query, key and value share.

    A mask is cut with them where it has that dimension.
    """
    slots = [tensor_in(named_args, name) for name in ("query", "key", "value")]
    operands = [operand for operand in slots if operand is not None]
    if len(operands) < 3 or len({tensor.dim() for _, tensor in operands}) > 1:
        return
    query, value, mask = operands[0][1], operands[2][1], tensor_in(named_args, "attn_mask")
    shape = (*query.shape[:-1], value.shape[-1])
    for dim in range(len(shape) - 2):
        if len({tensor.shape[dim] for _, tensor in operands}) > 1:
            continue
        inputs = {path: dim for path, _ in operands}
        if mask is not None:
            of_mask = mask[1].dim() - (len(shape) - dim)
            if of_mask >= 0 and mask[1].shape[of_mask] == shape[dim]:
                inputs[mask[0]] = of_mask
        yield Cut(shape, dim, inputs)


def convolution(operation: str) -> Rule:
    """Return the rule of a convolution, plain or transposed."""

    def cuts(named_args: NamedArgs) -> Iterator[Cut]:
        call = convolution_call(operation, named_args)
        if call is None:
            return
        (values, tensor), (weight, kernels) = call.values, call.weight
        count, places = len(tensor), math.prod(axis.features for axis in call.axes)
        windows = {values: count * places * kernels[0].numel() * call.groups}
        yield Cut(call.shape, 0, {values: 0}, windows=windows)
        if call.groups == 1:
            inputs = {weight: 1 if call.is_transposed else 0} | ({} if call.bias is None else {call.bias[0]: 0})
            yield Cut(call.shape, 1, inputs, windows=windows, is_feature=True)

    return cuts


def basic_index(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut a basic indexing, which reads no index from a tensor or a list, along each dimension that is all read."""
    operand, index = tensor_in(named_args, "input"), named_args.get("index", ("", []))[1]
    if operand is None:
        return
    path, tensor = operand
    items = list(index) if isinstance(index, tuple) else [index]
    if any(type(item) not in (int, slice, type(None), type(Ellipsis)) for item in items):
        return
    left = tensor.dim() - sum(type(item) in (int, slice) for item in items)
    if left < 0 or items.count(Ellipsis) > 1:
        return
    at = items.index(Ellipsis) if Ellipsis in items else len(items)
    items[at : at + 1] = [slice(None)] * left
    sizes = iter(enumerate(tensor.shape))
    shape: list[int] = []
    whole: list[tuple[int, int]] = []
    for item in items:
        if item is None:
            shape.append(1)
            continue
        dim, size = next(sizes)
        if item == slice(None):
            whole.append((len(shape), dim))
        if isinstance(item, slice):
            shape.append(len(range(*item.indices(size))))
    for of_result, of_input in whole:
        yield Cut(tuple(shape), of_result, {path: of_input})


def divisor(named_args: NamedArgs) -> torch.Tensor | None:
    """Return what a loss divides the sum of its rows or elements by, in float64; None where it is that sum."""
    if named_args.get("reduction", ("", "mean"))[1] != "mean":
        return None
    target = named_args["target"][1]
    if not is_index(target):
        return torch.tensor(target.numel(), dtype=torch.float64)
    counted, weight = (
        target[target != named_args.get("ignore_index", ("", _IGNORED))[1]],
        tensor_in(named_args, "weight"),
    )
    weights = torch.ones_like(counted, dtype=torch.float64) if weight is None else weight[1].detach().double()[counted]
    return weights.sum()


def loss_of_classes(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut the loss of a class for each row, of shape (N, C, ...) against (N, ...), by rows; weights stay whole."""
    ours, target = tensor_in(named_args, "input"), tensor_in(named_args, "target")
    if ours is None or target is None or not is_index(target[1]) or target[1].dim() != ours[1].dim() - 1:
        return
    shape, ignored = tuple(target[1].shape), named_args.get("ignore_index", ("", _IGNORED))[1]
    if not shape or shape != (ours[1].shape[0], *ours[1].shape[2:]):
        return
    # One block does not see the classes of another, and a device may not survive one that there is not.
    if _are_classes(target[1], ours[1].shape[1], ignored):
        yield from _reduced(named_args, Cut(shape, 0, {ours[0]: 0, target[0]: 0}))


def _are_classes(target: torch.Tensor, count: int, ignored: int) -> bool:
    return target.is_meta or bool(((target == ignored) | ((target >= 0) & (target < count))).all())


def loss_of_elements(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut the loss of each element along any dimension."""
    ours, target = tensor_in(named_args, "input"), tensor_in(named_args, "target")
    if ours is None or target is None or ours[1].shape != target[1].shape:
        return
    if is_index(target[1]) or any(tensor_in(named_args, name) is not None for name in ("weight", "pos_weight")):
        return
    for dim in range(ours[1].dim()):
        yield from _reduced(named_args, Cut(tuple(ours[1].shape), dim, {ours[0]: dim, target[0]: dim}))


def _reduced(named_args: NamedArgs, cut: Cut) -> Iterator[Cut]:
    """Yield the cut of a loss by its reduction, where that can be given another value."""
    path, reduction = named_args.get("reduction", ("kwargs.reduction", "mean"))
    if any(named_args.get(name, ("", None))[1] is not None for name in ("size_average", "reduce")):
        return
    if reduction == "none":
        yield cut
    elif reduction in ("mean", "sum") and path == "kwargs.reduction":
        yield replace(cut, is_reduced=True)


def along(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut what works along one dimension, as a softmax does, along any other one."""
    operand, dim = tensor_in(named_args, "input"), named_args.get("dim", ("", None))[1]
    if operand is None or type(dim) is not int:
        return
    path, tensor = operand
    if -tensor.dim() <= dim < tensor.dim():
        yield from _cut_alike(path, tensor, [other for other in range(tensor.dim()) if other != dim % tensor.dim()])


def over_last(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut what normalises the last dimensions along those before them; weights stay whole."""
    operand, normalized = tensor_in(named_args, "input"), named_args.get("normalized_shape", ("", None))[1]
    if operand is None:
        return
    count = len(normalized) if isinstance(normalized, (list, tuple)) else 1
    yield from _cut_alike(*operand, range(operand[1].dim() - count))


def over_groups(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut what normalises groups of channels of (N, C, ...) along N; weights of channels stay whole."""
    operand = tensor_in(named_args, "input")
    if operand is not None and operand[1].dim() > 1:
        yield from _cut_alike(*operand, [0])


def over_planes(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut what normalises each plane of (N, C, ...) by itself along N or C."""
    yield from _of_channels(named_args, [0, 1])


def over_channels(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut what normalises each channel of (N, C, ...) by itself along C."""
    yield from _of_channels(named_args, [1])


def _of_channels(named_args: NamedArgs, dims: Iterable[int]) -> Iterator[Cut]:
    """Cut (N, C, ...) along dimensions, and along C what there is a number of for each channel.

    Running statistics, which may be written to, are of all samples: with them along C alone.
    """
    operand = tensor_in(named_args, "input")
    if operand is None or operand[1].dim() < 2:
        return
    path, tensor = operand
    weights, statistics = _tensors(named_args, "weight", "bias"), _tensors(named_args, "running_mean", "running_var")
    if any(other.shape != (tensor.shape[1],) for other in (weights | statistics).values()):
        return
    for dim in dims:
        if dim == 1:
            inputs = {path: 1, **dict.fromkeys(weights | statistics, 0)}
            yield Cut(tuple(tensor.shape), 1, inputs, tuple(statistics), is_feature=True)
        elif not statistics:
            yield Cut(tuple(tensor.shape), dim, {path: dim})


def _tensors(named_args: NamedArgs, *names: str) -> dict[str, torch.Tensor]:
    return dict(operand for name in names if (operand := tensor_in(named_args, name)) is not None)


def _cut_alike(path: str, tensor: torch.Tensor, dims: Iterable[int]) -> Iterator[Cut]:
    for dim in dims:
        yield Cut(tuple(tensor.shape), dim, {path: dim})


def elementwise(named_args: NamedArgs) -> Iterator[Cut]:
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


def _broadcast_shape(*shapes: torch.Size) -> tuple[int, ...]:
    """Return what shapes broadcast to; an empty one where they do not."""
    dims = max(map(len, shapes), default=0)
    padded = [(1,) * (dims - len(shape)) + tuple(shape) for shape in shapes]
    distinct = [{size for size in sizes if size != 1} for sizes in zip(*padded, strict=True)]
    return tuple(max(sizes, default=1) for sizes in distinct) if all(len(sizes) <= 1 for sizes in distinct) else ()


def alike(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut a cast or a copy along any dimension, and what it is made like with it where that has the same shape."""
    operand = tensor_in(named_args, "input")
    if operand is None:
        return
    shape = tuple(operand[1].shape)
    for dim in range(len(shape)):
        yield Cut(shape, dim, {path: dim for path, tensor in tensors_in(named_args) if tensor.shape == shape})


def columns_of_weights(named_args: NamedArgs) -> Iterator[Cut]:
    """Cut an embedding by columns of its weights, of which each row that is read has a part in every block."""
    index, weight = tensor_in(named_args, "input"), tensor_in(named_args, "weight")
    if index is None or weight is None or weight[1].dim() != 2 or not is_index(index[1]):
        return
    if any(named_args.get(name, ("", None))[1] for name in ("max_norm", "sparse")):
        return
    shape = (*index[1].shape, weight[1].shape[1])
    yield Cut(shape, len(shape) - 1, {weight[0]: 1}, is_feature=True)
