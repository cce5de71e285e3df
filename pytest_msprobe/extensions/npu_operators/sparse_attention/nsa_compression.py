"""Native sparse attention (Yuan et al., 2025): keys and values compressed to one for each block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.sparse_attention.token_layouts import numbers, split_packed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor


def npu_nsa_compress(
    input: Tensor,
    weight: Tensor,
    compress_block_size: int,
    compress_stride: int,
    *,
    actual_seq_len: Sequence[int] | None = None,
) -> Tensor:
    """Return of each block of tokens the sum weighted with ``weight`` (block size, N), (blocks, N, D).

    ``input`` is (T, N, D), ``actual_seq_len`` where each sequence ends. A block starts every ``compress_stride`` tokens
    of a sequence; one that would reach beyond its end is left out. Raises ValueError without the ends.
    """
    sums, start = [input.new_zeros(0, *input.shape[1:])], 0
    for length in split_packed("npu_nsa_compress", actual_seq_len):
        tokens = input[start : start + length]
        start += length
        if length >= compress_block_size:
            # (blocks, N, D, block size)
            blocks = tokens.unfold(0, compress_block_size, compress_stride)
            sums.append(torch.einsum("cndi,in->cnd", blocks, weight))
    return torch.cat(sums)


def npu_nsa_compress_grad(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    compress_block_size: int,
    compress_stride: int,
    *,
    actual_seq_len: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_nsa_compress` for input and weight."""
    with torch.enable_grad():
        tokens, factors = (each.detach().requires_grad_() for each in (input, weight))
        out = npu_nsa_compress(tokens, factors, compress_block_size, compress_stride, actual_seq_len=actual_seq_len)
        of_input, of_weight = torch.autograd.grad(out, (tokens, factors), grad, allow_unused=True)
    return (
        torch.zeros_like(input) if of_input is None else of_input,
        torch.zeros_like(weight) if of_weight is None else of_weight,
    )


def npu_nsa_compress_infer(
    input: Tensor, weight: Tensor, slot_mapping: Tensor, compress_block_size: int, compress_stride: int,
    page_block_size: int,
    *, block_table: Tensor | None = None, actual_seq_len: Sequence[int] | None = None, cache: Tensor,
) -> Tensor:  # fmt: skip
    """Write to ``cache`` (slots, N, D) the last compressed block of each sequence that has just become complete.

    ``input`` holds pages (pages, page size, N, D), of which a row of ``block_table`` says which are a sequence's;
    ``actual_seq_len`` are lengths. A block is complete where a length is the block size or a multiple of the stride
    more; its weighted sum of the last block size tokens goes to the sequence's slot. Returns ``cache``. Raises
    ValueError without table or lengths. The meaning is that of op-plugin's own test.
    """
    if block_table is None or actual_seq_len is None:
        raise ValueError("npu_nsa_compress_infer needs block_table and actual_seq_len")
    for length, slot, pages in zip(numbers(actual_seq_len), slot_mapping.tolist(), block_table.long(), strict=True):
        if length < compress_block_size or (length - compress_block_size) % compress_stride:
            continue
        last = torch.arange(length - compress_block_size, length)
        tokens = input[pages[last // page_block_size], last % page_block_size]
        cache[slot] = torch.einsum("ind,in->nd", tokens, weight)
    return cache
