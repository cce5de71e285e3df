"""Tokens routed to experts and back, against loops over tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.engine.replay.references.moe import npu_moe_gating_top_k, npu_moe_gating_top_k_softmax
from pytest_msprobe.engine.replay.references.moe_routing import (
    npu_moe_compute_expert_tokens,
    npu_moe_finalize_routing,
    npu_moe_init_routing,
    npu_moe_re_routing,
    npu_moe_token_permute,
    npu_moe_token_unpermute,
)

EXPERTS = torch.tensor([[2, 0], [1, 2], [0, 2], [1, 0]], dtype=torch.int32)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor | None, expected: object) -> None:
    assert actual is not None
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-13)


def by_expert(indices: Tensor) -> list[tuple[int, int]]:
    """The copies (token, which of its choices) in the order of their experts."""
    copies = [(token, choice) for token in range(indices.shape[0]) for choice in range(indices.shape[1])]
    return sorted(copies, key=lambda copy: int(indices[copy]))


def test_permuting_brings_tokens_to_their_experts() -> None:
    tokens = draw(4, 3)
    permuted, places = npu_moe_token_permute(tokens, EXPERTS)
    order = by_expert(EXPERTS)
    close(permuted, [tokens[token].tolist() for token, _ in order])
    for place, (token, choice) in enumerate(order):
        assert places[2 * token + choice] == place
    assert places.dtype is torch.int32


@pytest.mark.parametrize(("asked", "rows"), [(5, 5), (0, 8), (100, 8), (-3, 5), (None, 8)])
def test_permuting_leaves_out_the_last_copies(asked: int | None, rows: int) -> None:
    tokens = draw(4, 3)
    permuted, places = npu_moe_token_permute(tokens, EXPERTS, asked)
    assert permuted.equal(npu_moe_token_permute(tokens, EXPERTS)[0][:rows])
    assert places.numel() == 8


def test_one_choice_per_token_needs_no_second_dimension() -> None:
    tokens, experts = draw(4, 3), torch.tensor([1, 0, 1, 0])
    permuted, places = npu_moe_token_permute(tokens, experts)
    close(permuted, tokens[[1, 3, 0, 2]])
    close(npu_moe_token_unpermute(permuted, places), tokens)


def test_unpermuting_weighs_and_adds_the_copies_of_a_token() -> None:
    rows, probs = draw(8, 3), draw(4, 2, seed=1)
    places = npu_moe_token_permute(draw(4, 1), EXPERTS)[1]
    expected = np.zeros((4, 3))
    for place, (token, choice) in enumerate(by_expert(EXPERTS)):
        expected[token] += float(probs[token, choice]) * rows[place].numpy()
    close(npu_moe_token_unpermute(rows, places, probs), expected)


def test_copies_that_were_left_out_count_as_zero() -> None:
    rows, probs = draw(5, 3), draw(4, 2, seed=1)
    places = npu_moe_token_permute(draw(4, 1), EXPERTS)[1]
    expected = np.zeros((4, 3))
    for place, (token, choice) in enumerate(by_expert(EXPERTS)[:5]):
        expected[token] += float(probs[token, choice]) * rows[place].numpy()
    close(npu_moe_token_unpermute(rows, places, probs), expected)


def test_permuting_there_and_back_is_differentiable() -> None:
    tokens, probs = draw(4, 3).requires_grad_(), draw(4, 2, seed=1).requires_grad_()

    def there_and_back(tokens: Tensor, probs: Tensor) -> Tensor:
        permuted, places = npu_moe_token_permute(tokens, EXPERTS, 7)
        return npu_moe_token_unpermute(permuted * permuted, places, probs)

    assert torch.autograd.gradcheck(there_and_back, (tokens, probs))


def test_padding_has_no_golden_definition() -> None:
    with pytest.raises(NotImplementedError, match="npu_moe_token_permute has no golden definition with padded_mode"):
        npu_moe_token_permute(draw(2, 2), EXPERTS, padded_mode=True)
    with pytest.raises(NotImplementedError, match="npu_moe_token_unpermute has no golden definition with padded_mode"):
        npu_moe_token_unpermute(draw(2, 2), EXPERTS, padded_mode=True)


# the example of torch_npu's documentation
def test_init_routing_is_that_of_the_documentation() -> None:
    x = torch.tensor([[0.1] * 4, [0.2] * 4, [0.3] * 4])
    row_idx = torch.tensor([[0, 3], [1, 4], [2, 5]], dtype=torch.int32)
    expert_idx = torch.tensor([[1, 2], [0, 1], [0, 2]], dtype=torch.int32)
    expanded, went, experts = npu_moe_init_routing(x, row_idx, expert_idx, 3)
    assert experts.tolist() == [0, 0, 1, 1, 2, 2]
    # expert 0: rows 1 and 2; expert 1: rows 0 and 1; expert 2: rows 0 and 2
    assert [round(float(row[0]), 1) for row in expanded] == [0.2, 0.3, 0.1, 0.2, 0.1, 0.3]
    # copy c of column-major order is of row c % 3, its choice c // 3
    assert went.tolist() == [2, 0, 1, 4, 3, 5]
    assert npu_moe_init_routing(x, row_idx, expert_idx, 2)[0].equal(expanded[:4])


def test_expert_tokens_are_counted_up_to_each_expert() -> None:
    experts = torch.tensor([0, 0, 2, 2, 2, 3], dtype=torch.int32)
    found = npu_moe_compute_expert_tokens(experts, 5)
    assert found.tolist() == [2, 2, 5, 6, 6]
    assert found.dtype is torch.int32


@pytest.mark.parametrize("mode", [0, 2])
def test_finalizing_adds_the_weighted_copies_with_their_experts_bias(mode: int) -> None:
    rows, skip1, skip2, bias, scales = (
        draw(*shape, seed=i) for i, shape in enumerate([(6, 4), (3, 4), (3, 4), (5, 4), (3, 2)])
    )
    places = torch.tensor([3, 0, 5, 1, 4, 2], dtype=torch.int32)
    experts = torch.tensor([[4, 0], [1, 3], [2, 2]], dtype=torch.int32)
    expected = np.zeros((3, 4))
    for i in range(3):
        expected[i] = skip1[i] + skip2[i]
        for k in range(2):
            place = int(places[i + 3 * k] if mode == 0 else places[2 * i + k])
            expected[i] += (scales[i, k] * (rows[place] + bias[int(experts[i, k])])).numpy()
    close(npu_moe_finalize_routing(rows, skip1, skip2, bias, scales, places, experts, mode), expected)


def test_finalizing_needs_neither_skips_nor_bias_nor_scales() -> None:
    rows = draw(3, 4)
    places = torch.tensor([2, 0, 1], dtype=torch.int32)
    close(npu_moe_finalize_routing(rows, None, None, None, None, places, None), rows[[2, 0, 1]])


@pytest.mark.parametrize("mode", [1, 3])
def test_finalizing_dropped_tokens_has_no_golden_definition(mode: int) -> None:
    with pytest.raises(NotImplementedError, match="with drop_pad_mode"):
        npu_moe_finalize_routing(draw(2, 2, 2), None, None, None, None, EXPERTS, None, mode)


def test_re_routing_orders_tokens_by_expert_and_then_by_rank() -> None:
    counts = torch.tensor([[1, 2], [2, 0], [1, 1]], dtype=torch.int32)
    origin = [(expert, rank) for rank in range(3) for expert in range(2) for _ in range(int(counts[rank, expert]))]
    tokens, scales = draw(7, 2), draw(7, seed=1)
    order = sorted(range(7), key=lambda token: origin[token])
    moved, moved_scales, places, per_expert = npu_moe_re_routing(tokens, counts, per_token_scales=scales)
    close(moved, tokens[order])
    close(moved_scales, scales[order])
    assert places.tolist() == order
    assert per_expert.tolist() == [4, 3]
    assert (places.dtype, per_expert.dtype) == (torch.int32, torch.int32)
    assert npu_moe_re_routing(tokens, counts)[1] is None


def gated(x: np.ndarray, k: int, bias: np.ndarray, groups: int, kept: int, by_two: bool, sigmoid: bool) -> tuple:
    """One row at a time, with Python's sort."""
    y, chosen = [], []
    for row in x:
        norm = 1 / (1 + np.exp(-row)) if sigmoid else np.exp(row) / np.exp(row).sum()
        scores = norm + bias
        size = len(row) // groups
        of_group = [
            sum(sorted(scores[g * size : (g + 1) * size], reverse=True)[: 2 if by_two else 1]) for g in range(groups)
        ]
        best = sorted(range(groups), key=lambda g: -of_group[g])[:kept]
        experts = [e for e in range(len(row)) if e // size in best]
        picked = sorted(experts, key=lambda e: (-scores[e], e))[:k]
        values = norm[picked]
        y.append(values / (values.sum() + 1e-20) if sigmoid else values)
        chosen.append(picked)
    return np.array(y), np.array(chosen)


@pytest.mark.parametrize("sigmoid", [False, True])
@pytest.mark.parametrize(("groups", "kept", "by_two"), [(1, 1, False), (4, 2, False), (4, 2, True)])
def test_gating_chooses_groups_and_then_experts(sigmoid: bool, groups: int, kept: int, by_two: bool) -> None:
    x, bias = draw(5, 12), draw(12, seed=1)
    y, experts, norm = npu_moe_gating_top_k(
        x,
        3,
        bias=bias,
        k_group=kept,
        group_count=groups,
        group_select_mode=int(by_two),
        norm_type=int(sigmoid),
        routed_scaling_factor=2.5,
    )
    expected, chosen = gated(x.numpy(), 3, bias.numpy(), groups, kept, by_two, sigmoid)
    close(y, 2.5 * expected)
    assert experts.tolist() == chosen.tolist()
    assert experts.dtype is torch.int32
    assert norm.shape == x.shape


def test_gating_without_bias_chooses_by_the_probabilities() -> None:
    x = draw(5, 12)
    y, experts, _ = npu_moe_gating_top_k(x, 3)
    expected, chosen = gated(x.numpy(), 3, np.zeros(12), 1, 1, False, False)
    close(y, expected)
    assert experts.tolist() == chosen.tolist()


@pytest.mark.parametrize("gating", [npu_moe_gating_top_k_softmax, npu_moe_gating_top_k])
def test_gating_in_half_precision_orders_what_only_rounding_would_make_equal(gating: object) -> None:
    x = torch.tensor([[0.0, 0.0078125, 0.015625, 0.0234375]], dtype=torch.bfloat16)
    y, experts, _ = gating(x, k=4)  # type: ignore[operator]
    assert y.dtype is torch.bfloat16
    assert experts.tolist() == [[3, 2, 1, 0]]


@pytest.mark.parametrize("options", [{"renorm": 1}, {"input_ids": EXPERTS}, {"tid2eid": EXPERTS}])
def test_gating_has_no_golden_definition_with_other_modes(options: dict[str, object]) -> None:
    with pytest.raises(NotImplementedError, match=f"no golden definition with {next(iter(options))}"):
        npu_moe_gating_top_k(draw(2, 4), 2, **options)  # type: ignore[arg-type]
