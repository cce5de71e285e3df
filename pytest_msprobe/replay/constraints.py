"""What random arguments must satisfy beyond their recorded ranges: indices in range, offsets sorted, and the like.

Each rule mends the drawn tensors of one family of APIs in place. Statistics cannot tell these things, and real data
never come here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

Rule: TypeAlias = Callable[["Drawn"], None]


class Drawn:
    """The arguments of one call, found by position or by keyword."""

    def __init__(self, args: Sequence[Any], kwargs: dict[str, Any], seed: int) -> None:
        self.args = list(args)
        self.kwargs = kwargs
        self.generator = torch.Generator().manual_seed(seed)

    def get(self, position: int, *names: str) -> Any:
        """Return the argument at a position or under one of its names; None where it was not given."""
        if position < len(self.args):
            return self.args[position]
        return next((self.kwargs[name] for name in names if name in self.kwargs), None)

    def tensor(self, position: int, *names: str) -> torch.Tensor | None:
        """Return the argument where it is a tensor, None otherwise."""
        value = self.get(position, *names)
        return value if isinstance(value, torch.Tensor) else None


def constrain(
    api: str, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the drawn arguments of an API, mended in place where the API promises nothing for what was drawn."""
    rule = _RULES.get(api.rsplit(".", 1)[-1])
    if rule is None:
        return args, kwargs
    drawn = Drawn(args, kwargs, seed)
    rule(drawn)
    return tuple(drawn.args), drawn.kwargs


def _wrap(index: torch.Tensor | None, size: int, *, negative: bool = False) -> None:
    """Bring integer indices into [0, size), or into [-size, size) where negative ones count from the end."""
    if index is None or index.dtype is torch.bool or index.is_floating_point() or size <= 0:
        return
    outside = (index < (-size if negative else 0)) | (index >= size)
    if bool(outside.any()):
        index[outside] = index[outside] % size


def _embedding(drawn: Drawn) -> None:
    index, weight = drawn.tensor(0, "input"), drawn.tensor(1, "weight")
    if weight is not None:
        _wrap(index, weight.shape[0])


def _embedding_bag(drawn: Drawn) -> None:
    _embedding(drawn)
    index, offsets = drawn.tensor(0, "input"), drawn.tensor(2, "offsets")
    if offsets is not None and index is not None and offsets.numel():
        offsets.copy_((offsets.abs() % (index.numel() + 1)).sort().values)
        offsets[0] = 0


def _along_dim(drawn: Drawn) -> None:
    source, dim, index = drawn.tensor(0, "input"), drawn.get(1, "dim"), drawn.tensor(2, "index")
    if source is not None and isinstance(dim, int):
        _wrap(index, source.shape[dim] if source.dim() else 1)


def _written_along_dim(drawn: Drawn) -> None:
    """Make places distinct where the API writes to them: which of two writers wins is not defined."""
    _along_dim(drawn)
    target, dim, index = drawn.tensor(0, "input"), drawn.get(1, "dim"), drawn.tensor(2, "index")
    if target is None or index is None or not isinstance(dim, int) or not (target.dim() and index.dim()):
        return
    size, axis = target.shape[dim], dim if index.dim() > 1 else 0
    if 0 < index.shape[axis] <= size:
        places = list(index.shape)
        places[axis] = size
        order = torch.rand(places, generator=drawn.generator).argsort(dim=axis)
        index.copy_(order.narrow(axis, 0, index.shape[axis]))


def _take(drawn: Drawn) -> None:
    source, index = drawn.tensor(0, "input"), drawn.tensor(1, "index")
    if source is not None:
        _wrap(index, source.numel(), negative=True)


def _indexing(drawn: Drawn) -> None:
    """Bring each index tensor into the range of the dimension that it indexes."""
    source, index = drawn.tensor(0), drawn.get(1, "indices")
    if source is None or index is None:
        return
    parts = list(index) if isinstance(index, (list, tuple)) else [index]
    consumed = sum(part.dim() if _is_mask(part) else 1 for part in parts if part is not None and part is not ...)
    dim = 0
    for part in parts:
        if part is ...:
            dim += source.dim() - consumed
        elif _is_mask(part):
            dim += part.dim()
        elif part is not None or isinstance(index, list):
            if isinstance(part, torch.Tensor) and dim < source.dim():
                _wrap(part, source.shape[dim], negative=True)
            dim += 1


def _is_mask(part: object) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


def _class_target(drawn: Drawn) -> None:
    scores, target = drawn.tensor(0, "input"), drawn.tensor(1, "target")
    if scores is None or target is None or target.is_floating_point():
        return
    classes = scores.shape[0 if scores.dim() == 1 else 1]
    ignored = drawn.kwargs.get("ignore_index", -100)
    outside = ((target < 0) | (target >= classes)) & (target != ignored)
    target[outside] = target[outside] % classes
    if bool((target == ignored).all()):
        target.zero_()


def _one_hot(drawn: Drawn) -> None:
    index, classes = drawn.tensor(0, "tensor", "input"), drawn.get(1, "num_classes")
    if index is not None:
        index.abs_()
        if isinstance(classes, int) and classes > 0:
            _wrap(index, classes)


def _sorted_boundaries(position: int, *names: str) -> Rule:
    def rule(drawn: Drawn) -> None:
        boundaries = drawn.tensor(position, *names)
        if boundaries is not None and boundaries.dim():
            boundaries.copy_(boundaries.sort(dim=-1).values)

    return rule


def _positive_definite(drawn: Drawn) -> None:
    """Replace a matrix A by A·Aᴴ + n·I, which keeps its dtype and shape and is positive definite."""
    matrix = drawn.tensor(0, "input", "A")
    if matrix is not None and matrix.dim() >= 2 and matrix.shape[-1] == matrix.shape[-2]:
        size = matrix.shape[-1]
        matrix.copy_(matrix @ matrix.mH / max(size, 1) + torch.eye(size, dtype=matrix.dtype))


def _probabilities(drawn: Drawn) -> None:
    weights = drawn.tensor(0, "input")
    if weights is not None and weights.is_floating_point():
        weights.abs_()


def _unit_interval(drawn: Drawn) -> None:
    probability = drawn.tensor(0, "input")
    if probability is not None and probability.is_floating_point():
        probability.clamp_(0.0, 1.0)


def _masked_scatter(drawn: Drawn) -> None:
    mask, source = drawn.tensor(1, "mask"), drawn.tensor(2, "source")
    if mask is not None and source is not None and mask.numel():
        surplus = mask.flatten().cumsum(0).view_as(mask) > source.numel()
        mask[surplus] = False


def _ctc_loss(drawn: Drawn) -> None:
    scores, targets = drawn.tensor(0, "log_probs"), drawn.tensor(1, "targets")
    if scores is None or targets is None:
        return
    scores.copy_(scores.log_softmax(-1))
    targets.copy_(targets.abs() % max(scores.shape[-1] - 1, 1) + 1)


def _packed(drawn: Drawn) -> None:
    """Sort the batch sizes of a packed sequence downwards and let them add up to its length."""
    data, sizes = drawn.tensor(0), drawn.tensor(1)
    if data is None or sizes is None or sizes.dim() != 1 or sizes.is_floating_point() or not sizes.numel():
        return
    base, extra = divmod(data.shape[0], sizes.numel())
    sizes.fill_(base)
    sizes[:extra] += 1


def _flat_unpool(drawn: Drawn) -> None:
    """Give each pooled value a place of its own within its plane."""
    values, places = drawn.tensor(0, "input"), drawn.tensor(1, "indices")
    if values is None or places is None:
        return
    plane = places.shape[-1] if places.dim() < 3 else places.shape[-1] * places.shape[-2]
    if plane:
        places.copy_(torch.arange(places.numel()).view_as(places) % plane)


def _npu_moe(drawn: Drawn) -> None:
    finished = drawn.tensor(1, "finished_optional", "finished")
    if finished is not None and finished.dtype is not torch.bool:
        finished.clamp_(0, 1)


# Modes in which the device reads a compressed mask: the upper triangle of a fixed size.
_COMPRESSED_MASK_MODES = (2, 3, 4, 6, 7, 8)


def _npu_attention(drawn: Drawn) -> None:
    mask = drawn.kwargs.get("atten_mask")
    if isinstance(mask, torch.Tensor) and drawn.kwargs.get("sparse_mode") in _COMPRESSED_MASK_MODES:
        mask.copy_(torch.ones_like(mask).triu(diagonal=1))


_RULES: dict[str, Rule] = {
    "embedding": _embedding,
    "embedding_bag": _embedding_bag,
    **dict.fromkeys(("gather", "index_select", "take_along_dim"), _along_dim),
    **dict.fromkeys(
        ("scatter_add", "scatter_add_", "scatter_reduce", "scatter_reduce_", "index_add", "index_add_"), _along_dim
    ),
    **dict.fromkeys(
        ("scatter", "scatter_", "index_copy", "index_copy_", "index_fill", "index_fill_"), _written_along_dim
    ),
    **dict.fromkeys(("take", "put", "put_"), _take),
    **dict.fromkeys(("__getitem__", "__setitem__", "index", "index_put", "index_put_"), _indexing),
    **dict.fromkeys(("cross_entropy", "nll_loss", "multi_margin_loss"), _class_target),
    "one_hot": _one_hot,
    "bincount": _one_hot,
    "searchsorted": _sorted_boundaries(0, "sorted_sequence"),
    "bucketize": _sorted_boundaries(1, "boundaries"),
    **dict.fromkeys(("cholesky", "cholesky_ex", "cholesky_inverse", "logdet", "slogdet"), _positive_definite),
    "multinomial": _probabilities,
    "poisson": _probabilities,
    "bernoulli": _unit_interval,
    **dict.fromkeys(("masked_scatter", "masked_scatter_"), _masked_scatter),
    "ctc_loss": _ctc_loss,
    **dict.fromkeys(("max_unpool1d", "max_unpool2d", "max_unpool3d"), _flat_unpool),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _packed),
    "npu_moe_gating_top_k_softmax": _npu_moe,
    "npu_fusion_attention": _npu_attention,
}
