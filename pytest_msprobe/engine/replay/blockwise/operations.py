"""Which operations can be cut, and where: one row per kind of operation.

A rule gives the cuts of a call whose blocks are independent, so that each element of the result is computed of the same
numbers as in the whole call. Its arguments may be tensors of any device, those without memory (``meta``) among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from pytest_msprobe.engine.replay.arguments import Arguments
from pytest_msprobe.engine.replay.blockwise.cut import Cut
from pytest_msprobe.engine.replay.side import may_work_in_place
from pytest_msprobe.engine.values.tree import tensors_with_paths

# The class that losses leave out where they are not told another.
_IGNORED = -100

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

Given = Mapping[str, tuple[str, Any]]
Rule = Callable[[Given], Iterator[Cut]]


def cuts_of(operation: str, arguments: Arguments) -> list[Cut]:
    """Return where a call can be cut; nowhere, mostly."""
    found = _RULES.get(operation)
    if found is None or may_work_in_place(operation, arguments):
        return []
    parameters, rule = found
    given = _by_name(parameters, arguments)
    tensors = tensors_with_paths([arguments.args, arguments.kwargs])
    if given is None or any(tensor.layout is not torch.strided or tensor.is_quantized for _, tensor in tensors):
        return []
    if sum(isinstance(value, torch.Tensor) for _, value in given.values()) != len(tensors):
        return []
    floats = [tensor.dtype for _, tensor in tensors if not _is_index(tensor)]
    return list(rule(given)) if floats and all(dtype in _DTYPES for dtype in floats) else []


def divisor_of(operation: str, arguments: Arguments) -> torch.Tensor | None:
    """Return what a loss divides the sum of its rows or elements by, in float64; None where it is that sum."""
    parameters, _ = _RULES[operation]
    given = _by_name(parameters, arguments) or {}
    if given.get("reduction", ("", "mean"))[1] != "mean":
        return None
    target = given["target"][1]
    if not _is_index(target):
        return torch.tensor(target.numel(), dtype=torch.float64)
    counted, weight = target[target != given.get("ignore_index", ("", _IGNORED))[1]], _tensor(given, "weight")
    each = torch.ones_like(counted, dtype=torch.float64) if weight is None else weight[1].detach().double()[counted]
    return each.sum()


def _is_index(tensor: torch.Tensor) -> bool:
    return tensor.dtype in (torch.int64, torch.int32, torch.bool)


def _by_name(parameters: tuple[str, ...], arguments: Arguments) -> Given | None:
    """Return path and value of each argument by its parameter's name; None where there are more than names."""
    args, kwargs = arguments.args, arguments.kwargs
    if len(args) > len(parameters):
        return None
    found = {name: (f"args.{i}", value) for i, (name, value) in enumerate(zip(parameters, args, strict=False))}
    return found | {name: (f"kwargs.{name}", value) for name, value in kwargs.items()}


def _tensor(given: Given, name: str) -> tuple[str, torch.Tensor] | None:
    path, value = given.get(name, ("", None))
    return (path, value) if isinstance(value, torch.Tensor) else None


def _broadcast(given: Given) -> Iterator[Cut]:
    """Cut an elementwise operation along any dimension of its result."""
    tensors = [(path, value) for path, value in given.values() if isinstance(value, torch.Tensor)]
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
    found = [{size for size in sizes if size != 1} for sizes in zip(*padded, strict=True)]
    return tuple(max(each, default=1) for each in found) if all(len(each) <= 1 for each in found) else ()


def _along(given: Given) -> Iterator[Cut]:
    """Cut what works along one dimension, as a softmax does, along any other one."""
    found, dim = _tensor(given, "input"), given.get("dim", ("", None))[1]
    if found is None or type(dim) is not int:
        return
    path, tensor = found
    if -tensor.dim() <= dim < tensor.dim():
        yield from _cut_alike(path, tensor, [each for each in range(tensor.dim()) if each != dim % tensor.dim()])


def _over_last(given: Given) -> Iterator[Cut]:
    """Cut what normalises the last dimensions along those before them; weights stay whole."""
    found, normalized = _tensor(given, "input"), given.get("normalized_shape", ("", None))[1]
    if found is None:
        return
    count = len(normalized) if isinstance(normalized, (list, tuple)) else 1
    yield from _cut_alike(*found, range(found[1].dim() - count))


def _cut_alike(path: str, tensor: torch.Tensor, dims: Any) -> Iterator[Cut]:
    for dim in dims:
        yield Cut(tuple(tensor.shape), dim, {path: dim})


def _columns_of_weights(given: Given) -> Iterator[Cut]:
    """Cut an embedding by columns of its weights, of which each row that is read has a part in every block."""
    index, weight = _tensor(given, "input"), _tensor(given, "weight")
    if index is None or weight is None or weight[1].dim() != 2 or not _is_index(index[1]):
        return
    if any(given.get(name, ("", None))[1] for name in ("max_norm", "sparse")):
        return
    shape = (*index[1].shape, weight[1].shape[1])
    yield Cut(shape, len(shape) - 1, {weight[0]: 1})


def _linear(given: Given) -> Iterator[Cut]:
    left, right, bias = (_tensor(given, name) for name in ("input", "weight", "bias"))
    if left is None or right is None or right[1].dim() != 2 or left[1].dim() < 2:
        return
    if left[1].shape[-1] != right[1].shape[1]:
        return
    shape = (*left[1].shape[:-1], right[1].shape[0])
    for dim in range(len(shape) - 1):
        yield Cut(shape, dim, {left[0]: dim})
    yield Cut(shape, len(shape) - 1, {right[0]: 0} | ({} if bias is None else {bias[0]: 0}))


def _product(left: str, right: str, added: str = "") -> Rule:
    """Return the rule of a matrix product: cut by rows of the left factor, columns of the right one, or the batch."""

    def cuts(given: Given) -> Iterator[Cut]:
        ours, theirs, more = (_tensor(given, name) for name in (left, right, added))
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
            yield Cut(shape, dim, inputs)

    return cuts


def _loss_of_classes(given: Given) -> Iterator[Cut]:
    """Cut the loss of a class for each row, of shape (N, C, ...) against (N, ...), by rows; weights stay whole."""
    ours, target = _tensor(given, "input"), _tensor(given, "target")
    if ours is None or target is None or not _is_index(target[1]) or target[1].dim() != ours[1].dim() - 1:
        return
    shape, ignored = tuple(target[1].shape), given.get("ignore_index", ("", _IGNORED))[1]
    if not shape or shape != (ours[1].shape[0], *ours[1].shape[2:]) or given.get("label_smoothing", ("", 0))[1]:
        return
    # One block does not see the classes of another, and a device may not survive one that there is not.
    if _are_classes(target[1], ours[1].shape[1], ignored):
        yield from _reduced(given, Cut(shape, 0, {ours[0]: 0, target[0]: 0}))


def _are_classes(target: torch.Tensor, count: int, ignored: int) -> bool:
    return target.is_meta or bool(((target == ignored) | ((target >= 0) & (target < count))).all())


def _loss_of_elements(given: Given) -> Iterator[Cut]:
    """Cut the loss of each element along any dimension."""
    ours, target = _tensor(given, "input"), _tensor(given, "target")
    if ours is None or target is None or ours[1].shape != target[1].shape:
        return
    if _is_index(target[1]) or any(_tensor(given, name) is not None for name in ("weight", "pos_weight")):
        return
    for dim in range(ours[1].dim()):
        yield from _reduced(given, Cut(tuple(ours[1].shape), dim, {ours[0]: dim, target[0]: dim}))


def _reduced(given: Given, cut: Cut) -> Iterator[Cut]:
    """Yield the cut of a loss by its reduction, where that can be given another value."""
    path, reduction = given.get("reduction", ("kwargs.reduction", "mean"))
    if any(given.get(name, ("", None))[1] is not None for name in ("size_average", "reduce")):
        return
    if reduction == "none":
        yield cut
    elif reduction in ("mean", "sum") and path == "kwargs.reduction":
        yield replace(cut, is_reduced=True)


def _rows(names: str, parameters: str, rule: Rule) -> dict[str, tuple[tuple[str, ...], Rule]]:
    return {name: (tuple(parameters.split()), rule) for name in names.split()}


_RULES: Mapping[str, tuple[tuple[str, ...], Rule]] = {
    **_rows("linear", "input weight bias", _linear),
    **_rows("matmul __matmul__", "input other", _product("input", "other")),
    **_rows("mm bmm", "input mat2", _product("input", "mat2")),
    **_rows("addmm", "input mat1 mat2", _product("mat1", "mat2", "input")),
    **_rows("baddbmm", "input batch1 batch2", _product("batch1", "batch2", "input")),
    **_rows("embedding", "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse", _columns_of_weights),
    **_rows("softmax log_softmax", "input dim _stacklevel dtype", _along),
    **_rows("layer_norm", "input normalized_shape weight bias eps", _over_last),
    **_rows("rms_norm", "input normalized_shape weight eps", _over_last),
    **_rows(
        "cross_entropy",
        "input target weight size_average ignore_index reduce reduction label_smoothing",
        _loss_of_classes,
    ),
    **_rows("nll_loss", "input target weight size_average ignore_index reduce reduction", _loss_of_classes),
    **_rows("mse_loss l1_loss", "input target size_average reduce reduction weight", _loss_of_elements),
    **_rows("smooth_l1_loss", "input target size_average reduce reduction beta", _loss_of_elements),
    **_rows("huber_loss", "input target reduction delta weight", _loss_of_elements),
    **_rows(
        "binary_cross_entropy_with_logits",
        "input target weight size_average reduce reduction pos_weight",
        _loss_of_elements,
    ),
    **_rows(
        "abs add div exp gelu log maximum minimum mul neg pow reciprocal relu rsqrt sigmoid silu sqrt square sub tanh"
        " true_divide where __add__ __mul__ __neg__ __pow__ __radd__ __rmul__ __rsub__ __rtruediv__ __sub__"
        " __truediv__",
        "input other third",
        _broadcast,
    ),
}
