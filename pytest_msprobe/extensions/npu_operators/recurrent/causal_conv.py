"""Causal convolutions of each channel along a sequence: with cached states, and with a mask."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import refuse
from pytest_msprobe.extensions.npu_operators.inputs import sequences


@golden("NPU.npu_fused_causal_conv1d", OpInfo(constraint=sequences.cached, in_place=True))
def npu_fused_causal_conv1d(
    x: Tensor, weight: Tensor, conv_states: Tensor,
    *, query_start_loc: Tensor | None = None, cache_indices: Tensor | None = None,
    initial_state_mode: Tensor | None = None, bias: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None, activation: str | None = "None", pad_slot_id: int | None = -1,
    run_mode: int | None = 0, residual_connection: int | None = 0, max_query_len: int | None = -1,
    num_computed_tokens: Tensor | None = None, block_idx_first_scheduled_token: Tensor | None = None,
    block_idx_last_scheduled_token: Tensor | None = None, initial_state_idx: Tensor | None = None,
    block_size: int | None = 128, conv_mode: str | None = "default", activation_mode: str | None = "None",
) -> Tensor:  # fmt: skip
    """Return the causal convolution of each sequence, in the shape of ``x``, and write ``conv_states``.

    ``x`` is (tokens, D) with the sequences' starts and the end in ``query_start_loc``, or (B, L, D). ``weight`` (K, D)
    goes over K - 1 tokens of the cache and the sequence: y[i] = sum_k weight[k] padded[i + k].

    ``conv_states`` (slots, C, D) holds for each sequence its last C tokens. ``cache_indices`` (B) names the slot, by
    default the sequence's number. What is read begins behind ``num_accepted_tokens`` - 1 tokens, without them at the
    last K - 1; it is 0 where ``num_computed_tokens`` is. The last C of what was read and the sequence are written.

    With ``cache_indices`` (B, blocks) prefixes are cached: the state is read from the block ``initial_state_idx`` and
    written to ``block_idx_last_scheduled_token``; the states at the ends of full blocks of ``block_size`` tokens go to
    the blocks from ``block_idx_first_scheduled_token`` on. ``conv_mode`` "pangu" sets what the first K - 1 tokens of
    all give to 0, and ``residual_connection`` 1 adds x (op-plugin's documentation).

    ``run_mode`` and ``max_query_len`` have no influence on values. Raises ValueError where an argument lacks that
    another needs, and NotImplementedError for ``initial_state_mode``, ``bias`` and ``activation``, which are not
    supported yet, ``activation_mode``, the former name of the last, and for sequences whose slot is ``pad_slot_id``,
    whose results nothing defines.
    """
    refuse(
        "npu_fused_causal_conv1d",
        initial_state_mode=initial_state_mode,
        bias=bias,
        activation=None if activation in (None, "None") else activation,
        activation_mode=None if activation_mode in (None, "None") else activation_mode,
    )
    cache = _Cache(
        conv_states,
        cache_indices,
        initial_state_idx,
        block_idx_first_scheduled_token,
        block_idx_last_scheduled_token,
        num_computed_tokens,
        num_accepted_tokens,
        128 if block_size is None else block_size,
    )
    if cache.skips(pad_slot_id):
        raise NotImplementedError("npu_fused_causal_conv1d has no golden definition of sequences in pad_slot_id")
    return _convolved(x, weight, query_start_loc, cache, pad_slot_id, conv_mode == "pangu", residual_connection == 1)


@golden("NPU.npu_fused_causal_conv1d_v2", OpInfo(constraint=sequences.cached, in_place=True))
def npu_fused_causal_conv1d_v2(
    x: Tensor, weight: Tensor, conv_states: Tensor,
    *, query_start_loc: Tensor | None = None, cache_indices: Tensor | None = None,
    initial_state_mode: Tensor | None = None, bias: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None, activation: str | None = "None", pad_slot_id: int | None = -1,
    run_mode: int | None = 0, residual_connection: int | None = 0, max_query_len: int | None = -1,
    num_computed_tokens: Tensor | None = None, block_idx_first_scheduled_token: Tensor | None = None,
    block_idx_last_scheduled_token: Tensor | None = None, initial_state_idx: Tensor | None = None,
    block_size: int | None = 128, conv_mode: str | None = "default",
) -> None:  # fmt: skip
    """Write :func:`npu_fused_causal_conv1d` into ``x``; assumed: a sequence in ``pad_slot_id`` stays as it is."""
    refuse(
        "npu_fused_causal_conv1d_v2",
        initial_state_mode=initial_state_mode,
        bias=bias,
        activation=None if activation in (None, "None") else activation,
    )
    cache = _Cache(
        conv_states,
        cache_indices,
        initial_state_idx,
        block_idx_first_scheduled_token,
        block_idx_last_scheduled_token,
        num_computed_tokens,
        num_accepted_tokens,
        128 if block_size is None else block_size,
    )
    pangu, residual = conv_mode == "pangu", residual_connection == 1
    x.copy_(_convolved(x, weight, query_start_loc, cache, pad_slot_id, pangu, residual))


@golden("NPU.npu_masked_causal_conv1d")
def npu_masked_causal_conv1d(input: Tensor, weight: Tensor, *, mask: Tensor | None = None) -> Tensor:
    """Return y[s] = sum_k weight[k] input[s - W + 1 + k] of each channel, 0 where ``mask`` is False.

    ``input`` is (S, B, H) and 0 before its start, ``weight`` (W, H), ``mask`` (B, S). Assumed, as undocumented: the
    last tap is the present token's, as it is in :func:`npu_fused_causal_conv1d`.
    """
    taps, steps = len(weight), len(input)
    padded = torch.cat((input.new_zeros(taps - 1, *input.shape[1:]), input))
    y = torch.stack([weight[k] * padded[k : k + steps] for k in range(taps)]).sum(0)
    return y if mask is None else y * mask.T.unsqueeze(-1)


@golden("Aten.npu_masked_causal_conv1d_backward")
def npu_masked_causal_conv1d_backward(
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    *,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_masked_causal_conv1d` for input and weight."""
    with torch.enable_grad():
        x, w = input.detach().requires_grad_(), weight.detach().requires_grad_()
        y = npu_masked_causal_conv1d(x, w, mask=mask)
    grad_x, grad_w = torch.autograd.grad(y, (x, w), grad_output)
    return grad_x, grad_w


@dataclass(frozen=True, slots=True)
class _Cache:
    """The cached states of sequences, and where each one's are; ``indices`` with two dimensions are blocks'."""

    states: Tensor
    indices: Tensor | None
    read_block: Tensor | None
    first_block: Tensor | None
    last_block: Tensor | None
    computed: Tensor | None
    accepted: Tensor | None
    block_size: int

    def skips(self, pad_slot_id: int | None) -> bool:
        """Return whether any sequence is one to be left out."""
        return self.indices is not None and pad_slot_id in self._write_lines().tolist()

    def written_line(self, number: int) -> int:
        """Return the slot in which a sequence's state is left."""
        return number if self.indices is None else int(self._write_lines()[number])

    def history(self, number: int, taps: int) -> tuple[Tensor, int]:
        """Return the cached tokens before a sequence, and how many of them come before the first that is used."""
        if self.computed is not None and int(self.computed[number]) == 0:
            return self.states.new_zeros(taps - 1, self.states.shape[2]), 0
        line = number
        if self.indices is not None:
            per_block = self.indices.dim() == 2
            line = int(self.indices[number, _given(self.read_block)[number]] if per_block else self.indices[number])
        accepted = self.states.shape[1] - taps + 1 if self.accepted is None else int(self.accepted[number]) - 1
        return self.states[line, : accepted + taps - 1].clone(), accepted

    def fill_blocks(self, number: int, used: Tensor, taps: int) -> None:
        """Write the states at the ends of full blocks; ``used`` are K - 1 tokens of history and the sequence."""
        if self.indices is None or self.indices.dim() == 1:
            return
        first, last = int(_given(self.first_block)[number]), int(_given(self.last_block)[number])
        size, length = self.block_size, len(used) - taps + 1
        behind = (length - (size - int(_given(self.computed)[number]) % size)) % size
        last_full = length - (behind or size)
        for place, line in enumerate(self.indices[number, first:last].tolist()):
            boundary = last_full - (last - first - place - 1) * size
            self.states[line, self.states.shape[1] - taps + 1 :] = used[boundary : boundary + taps - 1]

    def _write_lines(self) -> Tensor:
        assert self.indices is not None
        if self.indices.dim() == 1:
            return self.indices
        return self.indices.gather(1, _given(self.last_block).long().unsqueeze(1)).squeeze(1)


def _given(tensor: Tensor | None) -> Tensor:
    if tensor is None:
        raise ValueError(
            "cache_indices of blocks need num_computed_tokens, block_idx_first_scheduled_token, "
            "block_idx_last_scheduled_token and initial_state_idx"
        )
    return tensor


def _convolved(
    x: Tensor,
    weight: Tensor,
    starts: Tensor | None,
    cache: _Cache,
    pad_slot_id: int | None,
    pangu: bool,
    residual: bool,
) -> Tensor:
    """Return the convolved sequences, and ``x`` where one is left out."""
    results, taps, length = x.clone(), len(weight), cache.states.shape[1]
    for number, (rows, target) in enumerate(zip(_sequences(x, starts), _sequences(results, starts), strict=True)):
        line = cache.written_line(number)
        if cache.indices is not None and line == pad_slot_id:
            continue
        history, unused = cache.history(number, taps)
        padded = torch.cat((history, rows))
        used = padded[unused:]
        cache.fill_blocks(number, used, taps)
        latest = padded[-length:]
        cache.states[line, length - len(latest) :] = latest
        y = torch.stack([weight[k] * used[k : k + len(rows)] for k in range(taps)]).sum(0)
        if pangu:
            y[: max(taps - 1 - int(_given(cache.computed)[number]), 0)] = 0
        target.copy_(y + rows if residual else y)
    return results


def _sequences(x: Tensor, starts: Tensor | None) -> list[Tensor]:
    if x.dim() == 3:
        return list(x)
    if starts is None:
        raise ValueError("x of two dimensions needs query_start_loc")
    ends = starts.tolist()
    return [x[start:end] for start, end in pairwise(ends)]
