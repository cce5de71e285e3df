"""Tokens routed to experts and back, against loops over tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.experts.moe import npu_moe_gating_top_k, npu_moe_gating_top_k_softmax
from pytest_msprobe.extensions.npu_operators.experts.moe_routing import (
    npu_moe_compute_expert_tokens,
    npu_moe_finalize_routing,
    npu_moe_init_routing,
    npu_moe_init_routing_v2,
    npu_moe_re_routing,
    npu_moe_token_permute,
    npu_moe_token_permute_with_routing_map,
    npu_moe_token_unpermute,
    npu_moe_token_unpermute_with_routing_map,
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


@pytest.mark.parametrize("came", [False, True])
@pytest.mark.parametrize("cumulative", [False, True])
def test_init_routing_2_counts_and_places_the_copies(came: bool, cumulative: bool) -> None:
    x, scale, experts = draw(4, 3), draw(4, seed=1), EXPERTS + 3
    order = by_expert(experts)
    expanded, places, counts, scales = npu_moe_init_routing_v2(
        x,
        experts,
        scale=scale,
        expert_num=9,
        expert_tokens_num_type=0 if cumulative else 1,
        expert_tokens_num_flag=True,
        quant_mode=-1,
        active_expert_range=[2, 7],
        row_idx_type=int(came),
    )
    close(expanded, [x[token].tolist() for token, _ in order])
    close(scales, [float(scale[token]) for token, _ in order])
    flat = [2 * token + choice for token, choice in order]
    assert places.tolist() == (flat if came else [flat.index(copy) for copy in range(8)])
    # experts 2 to 6, of which 3, 4 and 5 are chosen
    each = [0, 3, 2, 3, 0]
    assert counts is not None
    assert counts.tolist() == ([0, 3, 5, 8, 8] if cumulative else each)
    assert (places.dtype, counts.dtype) == (torch.int32, torch.int64)


def test_init_routing_2_quantizes_each_row() -> None:
    x = draw(4, 3)
    expanded, _, counts, scales = npu_moe_init_routing_v2(x, EXPERTS, expert_num=3, quant_mode=1)
    steps = [max(abs(value) for value in x[token].tolist()) / 127 for token, _ in by_expert(EXPERTS)]
    close(scales, steps)
    rows = [x[token].tolist() for token, _ in by_expert(EXPERTS)]
    assert expanded.tolist() == [[round(v / step) for v in row] for row, step in zip(rows, steps, strict=True)]
    assert counts is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"quant_mode": 0}, "quant_mode_0"),
        ({"drop_pad_mode": 1}, "drop_pad_mode"),
        ({"expert_tokens_num_type": 2}, "expert_tokens_num_type"),
        ({"active_expert_range": [1, 3]}, "experts_outside_of_active_expert_range"),
    ],
)
def test_init_routing_2_names_what_has_no_golden_definition(options: dict[str, object], named: str) -> None:
    given = {"expert_num": 3, "quant_mode": 1, **options}
    with pytest.raises(NotImplementedError, match=f"has no golden definition with {named}"):
        npu_moe_init_routing_v2(draw(4, 3), EXPERTS, **given)  # type: ignore[arg-type]


# the examples of torch_npu's documentation
def test_a_routing_map_sends_tokens_as_in_the_documentation() -> None:
    tokens = torch.tensor([[0.1] * 4, [0.2] * 4, [0.3] * 4])
    probs = torch.tensor([[0.5, 0.3], [0.4, 0.6], [0.2, 0.8]])
    everyone = torch.ones((3, 2), dtype=torch.int8)
    permuted, chosen, places = npu_moe_token_permute_with_routing_map(tokens, everyone, probs=probs, num_out_tokens=6)
    assert permuted.equal(tokens.repeat(2, 1))
    assert chosen is not None
    assert chosen.equal(torch.tensor([0.5, 0.4, 0.2, 0.3, 0.6, 0.8]))
    assert places.tolist() == [0, 3, 1, 4, 2, 5]
    padded = npu_moe_token_permute_with_routing_map(tokens, everyone, num_out_tokens=4, drop_and_pad=True)
    assert (padded[0].shape, padded[1], padded[2].shape) == ((4, 4), None, (4,))


MAP = torch.tensor([[1, 0, 1], [0, 1, 1], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)


def test_a_routing_map_sends_each_token_to_its_experts_and_back() -> None:
    tokens, probs = draw(4, 2), draw(4, 3, seed=1)
    order = [(token, expert) for expert in range(3) for token in range(4) if MAP[token, expert]]
    permuted, chosen, places = npu_moe_token_permute_with_routing_map(tokens, MAP, probs=probs, num_out_tokens=8)
    close(permuted, [tokens[token].tolist() for token, _ in order])
    close(chosen, [float(probs[pair]) for pair in order])
    assert [order[place][0] for place in places] == [0, 0, 1, 1, 2, 2, 3, 3]
    back = npu_moe_token_unpermute_with_routing_map(permuted, places, [4, 2], probs=probs, routing_map=MAP)
    close(back, [(tokens[token] * sum(probs[token, MAP[token]])).tolist() for token in range(4)])
    close(npu_moe_token_unpermute_with_routing_map(permuted, places, [4, 2]), 2 * tokens)


def test_an_expert_of_fixed_capacity_takes_the_tokens_of_its_map_first() -> None:
    tokens, probs = draw(4, 2), draw(4, 3, seed=1)
    permuted, chosen, taken = npu_moe_token_permute_with_routing_map(
        tokens, MAP, probs=probs, num_out_tokens=9, drop_and_pad=True
    )
    # expert 1 is sent only tokens 1 and 2, and takes token 0 as well
    assert taken.tolist() == [0, 2, 3, 1, 2, 0, 0, 1, 3]
    close(permuted, tokens[taken.long()])
    close(chosen, [float(probs[int(token), i // 3]) for i, token in enumerate(taken)])
    expected = np.zeros((4, 2))
    for i, token in enumerate(taken.tolist()):
        expected[token] += permuted[i].numpy() * float(probs[token, i // 3])
    back = npu_moe_token_unpermute_with_routing_map(permuted, taken, [4, 2], probs=probs, drop_and_pad=True)
    close(back, expected)


@pytest.mark.parametrize("drop_and_pad", [False, True])
def test_routing_maps_there_and_back_are_differentiable(drop_and_pad: bool) -> None:
    options = {"drop_and_pad": drop_and_pad}

    def there_and_back(tokens: Tensor, probs: Tensor) -> Tensor:
        permuted, chosen, places = npu_moe_token_permute_with_routing_map(
            tokens, MAP, probs=probs, num_out_tokens=9 if drop_and_pad else 8, **options
        )
        assert chosen is not None
        weighted = permuted * permuted * chosen.unsqueeze(-1)
        return npu_moe_token_unpermute_with_routing_map(
            weighted, places, [4, 2], probs=probs, routing_map=MAP, **options
        )

    inputs = (draw(4, 2).requires_grad_(), draw(4, 3, seed=1).requires_grad_())
    assert torch.autograd.gradcheck(there_and_back, inputs)


def test_a_routing_map_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ValueError, match="other numbers of experts than 1"):
        npu_moe_token_permute_with_routing_map(draw(4, 2), MAP, num_out_tokens=4)
    with pytest.raises(ValueError, match="needs routing_map with probs"):
        npu_moe_token_unpermute_with_routing_map(draw(8, 2), torch.arange(8), [4, 2], probs=draw(4, 3))


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


def test_finalizing_with_a_bias_needs_the_experts() -> None:
    with pytest.raises(ValueError, match="bias of npu_moe_finalize_routing needs export_for_source_row"):
        npu_moe_finalize_routing(draw(2, 2), None, None, draw(3, 2), None, torch.tensor([0, 1]), None)


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
