"""Constraints on drawn sequences: lengths that add up, slots that are one sequence's own, results that follow."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.inputs.constraints.drawn import DrawnArguments, split_evenly
from pytest_msprobe.extensions.npu_operators.recurrent.gated_states import npu_gru
from pytest_msprobe.extensions.npu_operators.recurrent.lstm import _lstm_npu, lstm_steps


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
    _falling(sizes, x.shape[1])
    if mask is not None and mask.dim() == 3:
        mask.copy_(_present(sizes, x.shape[1]).expand_as(mask))


def saved_gru_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``npu_gru`` is given those of its inputs."""
    tensors = drawn.args[2:]
    if len(tensors) == 13 and all(isinstance(value, Tensor) for value in tensors):
        x, w, v, b, a, length, h, *saved = tensors
        x, h, w, v, b, a = _wide(x, h, w, v, b, a)
        _copy(npu_gru(x, h, w, v, b, a, length, True, 1, 0.0, True, False, False), saved)


def saved_lstm_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``npu_lstm`` is given those of its inputs."""
    tensors = drawn.args[3:]
    if len(tensors) == 13 and all(isinstance(value, Tensor) for value in tensors):
        x, w, b, h, c, *saved = tensors
        x, w, b, h, c = _wide(x, w, b, h[0], c[0])
        _copy(lstm_steps(x, w, b, h, c, None, False), saved)


def saved_lstm_data_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``npu_lstm_data`` is given those of its inputs, and its sizes fall."""
    tensors = drawn.args[3:17]
    if len(drawn.args) == 18 and all(isinstance(value, Tensor) for value in tensors):
        x, sizes, w, b, h, c, *saved = tensors
        _falling(sizes, x.shape[1])
        mask = _present(sizes, x.shape[1]).to(torch.float64)
        x, w, b, h, c = _wide(x, w, b, h[0], c[0])
        _copy(lstm_steps(x, w, b, h, c, mask, bool(drawn.args[17])), saved)


def saved_stack_results(drawn: DrawnArguments) -> None:
    """Make the results that the gradient of ``_lstm_npu`` is given those of its inputs."""
    if len(drawn.args) < 18 or drawn.kwargs.get("batch_sizes") is not None:
        return
    (x,), hx, params = _wide(drawn.args[3]), _wide(*drawn.args[4]), _wide(*drawn.args[5])
    has_biases, layers, dropout, _, bidirectional = drawn.args[13:18]
    batch_first = bool(drawn.kwargs.get("batch_first"))
    results = _lstm_npu(x, hx, params, has_biases, layers, dropout, True, bidirectional, batch_first=batch_first)
    _copy(results[3:], drawn.args[6:13])


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


def _falling(sizes: Tensor, batch: int) -> None:
    sizes.copy_(sizes.abs().clamp(1, batch).sort(descending=True).values)
    sizes[0] = batch


def _present(sizes: Tensor, batch: int) -> Tensor:
    """Return which sequences have each step, (T, B, 1)."""
    return (torch.arange(batch) < sizes[:, None]).unsqueeze(-1)


def _copy(results: Sequence[Tensor], saved: Sequence[Tensor]) -> None:
    for target, result in zip(saved, results, strict=True):
        target.copy_(result)


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(torch.float64) for tensor in tensors]
