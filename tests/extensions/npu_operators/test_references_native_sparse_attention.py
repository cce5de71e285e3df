"""Native sparse attention against loops, and by numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.sparse_attention.block_sparse_attention import (
    npu_nsa_select_attention,
    npu_nsa_select_attention_infer,
)
from pytest_msprobe.extensions.npu_operators.sparse_attention.nsa_compressed_attention import (
    npu_nsa_compress,
    npu_nsa_compress_attention,
    npu_nsa_compress_attention_infer,
    npu_nsa_compress_infer,
)
from tests.support.cann.examples.native_sparse_attention import EXAMPLES


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def test_blocks_start_anew_in_each_sequence_and_stay_within_it() -> None:
    tokens, weight = torch.arange(8.0).reshape(8, 1, 1), torch.tensor([[1.0], [10.0]])
    # 0 1 2 | 3 4 5 6 7: blocks of two, one token apart
    found = npu_nsa_compress(tokens, weight, 2, 1, actual_seq_len=[3, 8])
    assert found.flatten().tolist() == [10, 21, 43, 54, 65, 76]


def test_a_sequence_shorter_than_a_block_has_none() -> None:
    found = npu_nsa_compress(torch.ones(3, 1, 2), torch.ones(4, 1), 4, 2, actual_seq_len=[3])
    assert found.shape == (0, 1, 2)


def test_a_block_is_compressed_when_it_has_just_become_complete() -> None:
    pages, weight = torch.arange(8.0).reshape(2, 4, 1, 1), torch.ones(3, 1)
    cache = torch.zeros(3, 1, 1)
    table = torch.tensor([[1, 0], [0, 1], [0, 1]])
    options = {"block_table": table, "actual_seq_len": [5, 4, 2], "cache": cache}
    result = npu_nsa_compress_infer(pages, weight, torch.tensor([2, 0, 1]), 3, 2, 4, **options)
    # of the first sequence tokens 6, 7 and 0; the second's length is one more than a block's, the third has none
    assert result is cache
    assert cache.flatten().tolist() == [0, 0, 13]


def importance(weights: list[float], count: int, blocks: int, **options: Tensor) -> list[int]:
    """Positions for one query whose weights are given; a block is four strides, a compressed block two."""
    keys = torch.tensor(weights, dtype=torch.float64).log().reshape(-1, 1, 1)
    ends = {"actual_seq_qlen": [1], "actual_cmp_seq_kvlen": [len(weights)], "actual_sel_seq_kvlen": [blocks]}
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    return (
        npu_nsa_compress_attention(one, keys, keys, 1.0, 1, 32, 16, 64, count, **ends, **options)[1].flatten().tolist()
    )


def test_importance_adds_up_the_compressed_blocks_in_the_window_of_a_block() -> None:
    # block 0 counts keys 0 to 4 as 1 2 2 2 1, block 1 keys 4 to 8: 2.2 + 0.8 against 0.8 + 2.4
    assert importance([0.2, 0.2, 0.2, 0.2, 0.8, 0.4, 0.4, 0.4], 2, 2) == [1, 0]
    # key 4 belongs to both, so that without it block 0 is ahead
    assert importance([0.2, 0.2, 0.2, 0.2, 0.8, 0.2, 0.2, 0.2], 2, 2) == [0, 1]


def test_forced_blocks_come_first() -> None:
    weights = [0.5, 0.5, 0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    mask = torch.tensor([[False, False, True]])
    assert importance(weights, 2, 3, topk_mask=mask) == [2, 0]


def test_decoding_always_selects_the_first_block_and_the_last_two() -> None:
    query, cache = torch.ones(1, 1, 1), torch.zeros(2, 16, 1)
    # 29 compressed keys reach over 480 tokens, which are 8 blocks of 64
    options = {"block_table": torch.tensor([[1, 0]]), "actual_cmp_seq_kvlen": [29]}
    cache[1, 12] = 3.0
    _, positions = npu_nsa_compress_attention_infer(query, cache, cache, 1.0, 1, 1, 64, 4, 16, 32, 16, **options)
    assert positions.flatten().tolist() == [0, 6, 7, 2]


def test_gradients_of_compressed_attention_are_those_of_finite_differences() -> None:
    ends = {"actual_seq_qlen": [2], "actual_cmp_seq_kvlen": [4], "actual_sel_seq_kvlen": [1]}

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return npu_nsa_compress_attention(q, k, v, 0.5, 2, 32, 16, 64, 1, **ends)[0]

    assert torch.autograd.gradcheck(function, (draw(2, 2, 3), draw(4, 1, 3, seed=1), draw(4, 1, 2, seed=2)))


def test_gradients_of_selected_attention_are_those_of_finite_differences() -> None:
    indices = torch.tensor([[[1, 0]], [[1, -1]]], dtype=torch.int32)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ends = {"actual_seq_qlen": [2], "actual_seq_kvlen": [5]}
        return npu_nsa_select_attention(q, k, v, indices, 0.5, 2, 2, 2, **ends)[0]

    assert torch.autograd.gradcheck(function, (draw(2, 2, 3), draw(5, 1, 3, seed=1), draw(5, 1, 2, seed=2)))


def test_a_mask_of_selected_attention_is_refused() -> None:
    call = EXAMPLES["npu_nsa_select_attention"](torch.Generator())
    with pytest.raises(NotImplementedError, match="atten_mask"):
        npu_nsa_select_attention(*call.args, **call.kwargs, atten_mask=torch.ones(2, 2))


def test_decoding_needs_lengths() -> None:
    call = EXAMPLES["npu_nsa_select_attention_infer"](torch.Generator())
    with pytest.raises(ValueError, match="actual_seq_kvlen"):
        npu_nsa_select_attention_infer(*call.args, **{**call.kwargs, "actual_seq_kvlen": None})
