"""Constraints on drawn values: boundaries sorted, matrices that can be inverted, counts that add up, and the like."""

from __future__ import annotations

import math

import torch

from pytest_msprobe.engine.replay.inputs.constraints.drawn import Constraint, DrawnArguments, split_evenly
from pytest_msprobe.engine.replay.inputs.constraints.indices import wrap
from pytest_msprobe.engine.replay.inputs.constraints.segments import fall_and_add_up

# Exponentials of such scores are zero in float32 and narrower formats, as from -104 on and not at -100; fill values
# lie far below.
_VANISHING = -200.0

# Modes in which the device reads a compressed mask: the upper triangle of a fixed size.
_COMPRESSED_MASK_MODES = (2, 3, 4, 6, 7, 8)


def sorted_boundaries(position: int, *names: str) -> Constraint:
    """Sort the boundaries at a position, or under one of its names, along their last dimension."""

    def constraint(drawn: DrawnArguments) -> None:
        boundaries = drawn.tensor(position, *names)
        if boundaries is not None and boundaries.dim():
            boundaries.copy_(boundaries.sort(dim=-1).values)

    return constraint


def divisor(position: int, *names: str) -> Constraint:
    """Replace zeros between the ends of whole divisors by 1 and -1; an end that is zero was recorded so."""

    def constraint(drawn: DrawnArguments) -> None:
        found = drawn.tensor(position, *names)
        if found is None or not found.numel() or found.is_floating_point() or found.is_complex():
            return
        if found.dtype is torch.bool or not found.dtype.is_signed:
            return
        zeros = found == 0
        if bool(found.min() < 0) and bool(found.max() > 0) and bool(zeros.any()):
            signs = torch.randint(2, (int(zeros.sum()),), generator=drawn.generator) * 2 - 1
            found[zeros] = signs.to(found.dtype)

    return constraint


def positive_definite(drawn: DrawnArguments) -> None:
    """Replace a matrix A by A·Aᴴ + n·I, which keeps its dtype and shape and is positive definite."""
    matrix = drawn.tensor(0, "input", "A")
    if matrix is not None and matrix.dim() >= 2 and matrix.shape[-1] == matrix.shape[-2]:
        size = matrix.shape[-1]
        matrix.copy_(matrix @ matrix.mH / max(size, 1) + torch.eye(size, dtype=matrix.dtype))


def well_conditioned(position: int, *names: str) -> Constraint:
    """Make square matrices diagonally dominant: right results of a badly conditioned one differ at will."""

    def constraint(drawn: DrawnArguments) -> None:
        matrix = drawn.tensor(position, *names)
        if matrix is not None and matrix.dim() >= 2 and matrix.shape[-1] == matrix.shape[-2]:
            matrix.diagonal(dim1=-2, dim2=-1).add_(matrix.abs().sum(dim=-1))

    return constraint


def probabilities(drawn: DrawnArguments) -> None:
    """Make the weights of what is drawn, or the rates, positive."""
    weights = drawn.tensor(0, "input")
    if weights is not None and weights.is_floating_point():
        weights.abs_()


def unit_interval(drawn: DrawnArguments) -> None:
    """Map probabilities into [0, 1]."""
    probability = drawn.tensor(0, "input")
    if probability is not None and probability.is_floating_point():
        probability.clamp_(0.0, 1.0)


def distributions(position: int, name: str) -> Constraint:
    """Make the rows of an argument sum to 1 where what is computed of them takes that for granted."""

    def constrain(drawn: DrawnArguments) -> None:
        rows = drawn.tensor(position, name)
        if rows is not None and rows.is_floating_point() and rows.dim():
            rows.abs_().div_(rows.sum(-1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny))

    return constrain


def masked_scores(drawn: DrawnArguments) -> None:
    """Lower every eighth row of masked scores as a whole, to far above the fill value.

    A softmax over the last dimension stays the same; one that keeps the greatest score in divides zero by zero.
    """
    scores = drawn.tensor(0, "input", "self")
    if scores is None or scores.dim() < 2 or not scores.is_floating_point() or not scores.numel():
        return
    fill = scores.amin()
    shown = scores > fill / 2
    if fill < 5 * _VANISHING and bool((shown | (scores == fill)).all()):
        # The first and the last row hold the recorded extrema.
        scores.view(-1, scores.shape[-1])[1:-1:8] += _VANISHING * shown.view(-1, scores.shape[-1])[1:-1:8]


def masked_scatter(drawn: DrawnArguments) -> None:
    """Make the mask select no more places than there are source values."""
    mask, source = drawn.tensor(1, "mask"), drawn.tensor(2, "source")
    if mask is not None and source is not None and mask.numel():
        target = drawn.tensor(0, "input")
        repeated = 1 if target is None else max(target.numel() // mask.numel(), 1)
        surplus = mask.flatten().cumsum(0).view_as(mask) > source.numel() // repeated
        mask[surplus] = False


def ctc_loss(scores_at: int = 0, blank_at: int = 4) -> Constraint:
    """Normalise scores, keep the blank out of the labels, let lengths fit and those of labels in a row add up."""

    def constraint(drawn: DrawnArguments) -> None:
        scores, targets = drawn.tensor(scores_at, "log_probs"), drawn.tensor(scores_at + 1, "targets")
        if scores is None or targets is None:
            return
        scores.copy_(scores.log_softmax(-1))
        blank, classes = drawn.get(blank_at, "blank") or 0, scores.shape[-1]
        if classes > 1:
            # The blank is no label: the others are counted from behind it.
            targets.copy_((targets.abs() % (classes - 1) + blank + 1) % classes)
        wrap(drawn.tensor(scores_at + 2, "input_lengths"), scores.shape[0] + 1)
        lengths = drawn.tensor(scores_at + 3, "target_lengths")
        if lengths is not None and lengths.numel() and targets.dim() == 1:
            split_evenly(targets.numel(), lengths)
        elif targets.dim() == 2:
            wrap(lengths, targets.shape[1] + 1)

    return constraint


def packed(drawn: DrawnArguments) -> None:
    """Make the batch sizes of a packed sequence fall from the state's batch and add up to the sequence's length."""
    data, sizes, state = drawn.tensor(0), drawn.tensor(1), drawn.get(2)
    state = state[0] if isinstance(state, (list, tuple)) and state else state
    if data is None or sizes is None or sizes.dim() != 1 or sizes.is_floating_point() or not sizes.numel():
        return
    batch = state.shape[1] if isinstance(state, torch.Tensor) and state.dim() == 3 else data.shape[0]
    fall_and_add_up(sizes, batch, data.shape[0])


def unpool(spatial: int) -> Constraint:
    """Assign each pooled value a place of its own within its plane of that many dimensions."""

    def constraint(drawn: DrawnArguments) -> None:
        places = drawn.tensor(1, "indices")
        if places is not None and places.numel():
            plane = math.prod(places.shape[-spatial:])
            places.copy_(torch.arange(places.numel()).view_as(places) % plane)

    return constraint


def repeats(drawn: DrawnArguments) -> None:
    """Make the repetitions, which ATen takes alone too, add up to the recorded ``output_size``."""
    alone = drawn.tensor(1, "repeats") is None and not isinstance(drawn.get(1, "repeats"), int)
    counts, total = drawn.tensor(0 if alone else 1, "repeats"), drawn.get(3, "output_size")
    if counts is not None and isinstance(total, int) and counts.numel():
        split_evenly(total, counts)


def compressed_mask(drawn: DrawnArguments) -> None:
    """Make the mask the upper triangle where the device takes it for that."""
    mask = drawn.kwargs.get("atten_mask")
    if isinstance(mask, torch.Tensor) and drawn.kwargs.get("sparse_mode") in _COMPRESSED_MASK_MODES:
        mask.copy_(torch.ones_like(mask).triu(diagonal=1))


def packed_attention(query_at: int = 0, ends_at: int | None = None) -> Constraint:
    """Share out tokens among lengths that are tensors, ends of packed sequences; masks as `compressed_mask`.

    The ends of the query's sequences are at a position, those of the keys' behind them, or both are keywords.
    """

    def constraint(drawn: DrawnArguments) -> None:
        compressed_mask(drawn)
        for more, of_whom, name in ((0, "query", "actual_seq_qlen"), (1, "key", "actual_seq_kvlen")):
            tokens, ends = drawn.tensor(query_at + more, of_whom), drawn.kwargs.get(name)
            if ends is None and ends_at is not None:
                ends = drawn.tensor(ends_at + more)
            if tokens is not None and isinstance(ends, torch.Tensor) and ends.numel():
                split_evenly(tokens.shape[0], ends)
                ends.copy_(ends.cumsum(0))

    return constraint
