"""Constraints on drawn sequences: lengths that add up, slots that are one sequence's own, results that follow."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments, split_evenly


def lengths(drawn: DrawnArguments) -> None:
    """Share out the tokens of the third argument among the sequences."""
    value, counts = drawn.tensor(2, "value"), drawn.kwargs.get("actual_seq_lengths")
    if value is not None and isinstance(counts, Tensor) and counts.numel():
        split_evenly(len(value), counts)


def delta_rule(drawn: DrawnArguments) -> None:
    """Share out the tokens, give each a state of its own, and accept at least one token of each sequence."""
    lengths(drawn)
    state, places = drawn.tensor(3, "state"), drawn.kwargs.get("ssm_state_indices")
    if state is not None and isinstance(places, Tensor):
        _own(places, len(state), drawn.generator)
    counts, accepted = drawn.kwargs.get("actual_seq_lengths"), drawn.kwargs.get("num_accepted_tokens")
    if isinstance(counts, Tensor) and isinstance(accepted, Tensor):
        accepted.copy_(accepted.abs().clamp(min=1).minimum(counts.clamp(min=1)))


def cached(drawn: DrawnArguments) -> None:
    """Share out the tokens, give each sequence a slot of its own, and accept no more tokens than a slot has.

    With slots of blocks, each sequence stays within its first.
    """
    x, weight, states = drawn.tensor(0, "x"), drawn.tensor(1, "weight"), drawn.tensor(2, "conv_states")
    if x is None or weight is None or states is None:
        return
    starts, slots = drawn.kwargs.get("query_start_loc"), drawn.kwargs.get("cache_indices")
    if isinstance(starts, Tensor) and starts.numel() > 1:
        split_evenly(len(x) * (x.shape[1] if x.dim() == 3 else 1), starts[1:])
        starts[0] = 0
        starts.copy_(starts.cumsum(0))
    if isinstance(slots, Tensor):
        _own(slots, len(states), drawn.generator)
    accepted, computed = drawn.kwargs.get("num_accepted_tokens"), drawn.kwargs.get("num_computed_tokens")
    if isinstance(accepted, Tensor):
        accepted.clamp_(1, states.shape[1] - len(weight) + 2)
    if isinstance(computed, Tensor):
        computed.abs_()
    for name in ("block_idx_first_scheduled_token", "block_idx_last_scheduled_token", "initial_state_idx"):
        block = drawn.kwargs.get(name)
        if isinstance(block, Tensor):
            block.zero_()


def padded(drawn: DrawnArguments) -> None:
    """Make the mask of ``npu_lstm`` that of sequences of several lengths, the longest first."""
    mask = drawn.tensor(3, "seq_mask")
    if mask is not None and mask.dim() == 3:
        steps, batch = mask.shape[:2]
        present = torch.arange(steps)[:, None] < steps - torch.arange(batch) % steps
        mask.copy_(present.unsqueeze(-1).expand_as(mask))


def padded_by_sizes(drawn: DrawnArguments) -> None:
    """Make the numbers of sequences that have each step fall, and the mask of ``npu_lstm_data`` say the same."""
    x, sizes, mask = drawn.tensor(0, "input"), drawn.tensor(1, "batch_sizes"), drawn.tensor(4, "seq_mask")
    if x is None or sizes is None:
        return
    make_fall(sizes, x.shape[1])
    if mask is not None and mask.dim() == 3:
        mask.copy_(present(sizes, x.shape[1]).expand_as(mask))


def histogram(drawn: DrawnArguments) -> None:
    """Make the ends and the counts of ``npu_ifmr`` those of its data."""
    data, low, high = drawn.tensor(0, "data"), drawn.tensor(1, "data_min"), drawn.tensor(2, "data_max")
    counts = drawn.tensor(3, "cumsum")
    if data is None or low is None or high is None or counts is None or not data.numel():
        return
    low.fill_(float(data.min()))
    high.fill_(float(data.max()))
    bins = torch.histc(data.float(), counts.numel(), float(low), float(high))
    counts.copy_(bins.cumsum(0).view(counts.shape))


def _own(places: Tensor, count: int, generator: torch.Generator) -> None:
    """Assign each place a number below ``count`` of its own; where there are too few they repeat."""
    numbers = torch.randperm(max(count, 1), generator=generator)
    places.copy_(numbers[torch.arange(places.numel()) % len(numbers)].view(places.shape))


def make_fall(sizes: Tensor, batch: int) -> None:
    """Make the numbers of sequences that have each step fall from the whole batch on."""
    sizes.copy_(sizes.abs().clamp(1, batch).sort(descending=True).values)
    sizes[0] = batch


def present(sizes: Tensor, batch: int) -> Tensor:
    """Return which sequences have each step, (T, B, 1)."""
    return (torch.arange(batch) < sizes[:, None]).unsqueeze(-1)


def copy_results(results: Sequence[Tensor], saved: Sequence[Tensor]) -> None:
    """Copy results to the arguments that saved them."""
    for target, result in zip(saved, results, strict=True):
        target.copy_(result)


def wide(*tensors: Tensor) -> list[Tensor]:
    """Return tensors in float64."""
    return [tensor.to(torch.float64) for tensor in tensors]
