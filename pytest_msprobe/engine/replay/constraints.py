"""What random arguments must satisfy beyond their recorded ranges: indices in range, offsets sorted, and the like.

Each rule mends the drawn tensors of one family of APIs in place. Statistics cannot tell these things, and real data
never come here.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from pytest_msprobe.engine.replay import drawn_indices as indices
from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.drawn import Drawn, Rule, share_out


def constrain(
    api: str, args: tuple[Any, ...], kwargs: dict[str, Any], seed: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the drawn arguments of an API, mended in place where the API promises nothing for what was drawn."""
    rule = _RULES.get(operation(api))
    if rule is None:
        return args, kwargs
    drawn = Drawn(args, kwargs, seed)
    rule(drawn)
    return tuple(drawn.args), drawn.kwargs


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


def _well_conditioned(position: int, *names: str) -> Rule:
    """Make square matrices diagonally dominant: right results of a badly conditioned one differ at will."""

    def rule(drawn: Drawn) -> None:
        matrix = drawn.tensor(position, *names)
        if matrix is not None and matrix.dim() >= 2 and matrix.shape[-1] == matrix.shape[-2]:
            matrix.diagonal(dim1=-2, dim2=-1).add_(matrix.abs().sum(dim=-1))

    return rule


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
        target = drawn.tensor(0, "input")
        repeated = 1 if target is None else max(target.numel() // mask.numel(), 1)
        surplus = mask.flatten().cumsum(0).view_as(mask) > source.numel() // repeated
        mask[surplus] = False


def _ctc_loss(drawn: Drawn) -> None:
    scores, targets = drawn.tensor(0, "log_probs"), drawn.tensor(1, "targets")
    if scores is None or targets is None:
        return
    scores.copy_(scores.log_softmax(-1))
    blank, classes = drawn.get(4, "blank") or 0, scores.shape[-1]
    if classes > 1:
        # The blank is no label: the others are counted from behind it.
        targets.copy_((targets.abs() % (classes - 1) + blank + 1) % classes)
    lengths = drawn.tensor(3, "target_lengths")
    if lengths is not None and lengths.numel() and targets.dim() == 1:
        share_out(targets.numel(), lengths)


def _packed(drawn: Drawn) -> None:
    """Let the batch sizes of a packed sequence fall from the state's batch and add up to the sequence's length."""
    data, sizes, state = drawn.tensor(0), drawn.tensor(1), drawn.get(2)
    state = state[0] if isinstance(state, (list, tuple)) and state else state
    if data is None or sizes is None or sizes.dim() != 1 or sizes.is_floating_point() or not sizes.numel():
        return
    batch = state.shape[1] if isinstance(state, torch.Tensor) and state.dim() == 3 else data.shape[0]
    left = data.shape[0] - sizes.numel()
    for step in range(sizes.numel()):
        more = max(min(batch - 1, left), 0)
        sizes[step] = 1 + more
        left -= more


def _unpool(spatial: int) -> Rule:
    """Give each pooled value a place of its own within its plane of that many dimensions."""

    def rule(drawn: Drawn) -> None:
        places = drawn.tensor(1, "indices")
        if places is not None and places.numel():
            plane = math.prod(places.shape[-spatial:])
            places.copy_(torch.arange(places.numel()).view_as(places) % plane)

    return rule


def _repeats(drawn: Drawn) -> None:
    repeats, total = drawn.tensor(1, "repeats"), drawn.get(3, "output_size")
    if repeats is not None and isinstance(total, int) and repeats.numel():
        share_out(total, repeats)


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
    "embedding": indices.embedding,
    **dict.fromkeys(("embedding_bag", "_embedding_bag"), indices.embedding_bag),
    **dict.fromkeys(("gather", "index_select"), indices.along_dim),
    "take_along_dim": indices.take_along_dim,
    **dict.fromkeys(
        """scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_add index_add_ index_reduce
        index_reduce_""".split(),
        indices.along_dim,
    ),
    **dict.fromkeys(
        "scatter scatter_ index_copy index_copy_ index_fill index_fill_".split(), indices.written_along_dim
    ),
    "take": indices.take,
    **dict.fromkeys(("put", "put_"), indices.put),
    **dict.fromkeys(("__getitem__", "index"), indices.indexing),
    **dict.fromkeys(("__setitem__", "index_put", "index_put_", "_index_put_impl_"), indices.written_indexing),
    **dict.fromkeys(
        "cross_entropy nll_loss nll_loss2d multi_margin_loss nll_loss_forward nll_loss2d_forward nll_loss_nd".split(),
        indices.class_target,
    ),
    "one_hot": indices.one_hot,
    "bincount": indices.one_hot,
    "repeat_interleave": _repeats,
    "searchsorted": _sorted_boundaries(0, "sorted_sequence"),
    "bucketize": _sorted_boundaries(1, "boundaries"),
    **dict.fromkeys(("cholesky", "cholesky_ex", "cholesky_inverse", "logdet", "slogdet"), _positive_definite),
    **dict.fromkeys("inv inv_ex inverse solve solve_ex solve_triangular".split(), _well_conditioned(0, "input", "A")),
    **dict.fromkeys("triangular_solve cholesky_solve".split(), _well_conditioned(1, "A", "input2", "L")),
    "multinomial": _probabilities,
    "poisson": _probabilities,
    "bernoulli": _unit_interval,
    **dict.fromkeys(("masked_scatter", "masked_scatter_"), _masked_scatter),
    "ctc_loss": _ctc_loss,
    **{f"max_unpool{spatial}d": _unpool(spatial) for spatial in (1, 2, 3)},
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _packed),
    "npu_moe_gating_top_k_softmax": _npu_moe,
    "npu_fusion_attention": _npu_attention,
}
