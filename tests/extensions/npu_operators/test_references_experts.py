"""Experts and the ways to them and back, against definitions of their own and numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.experts.moe import (
    npu_moe_gating_top_k,
    npu_moe_gating_top_k_backward,
    npu_moe_gating_top_k_softmax_v2,
    npu_moe_update_expert,
)
from pytest_msprobe.extensions.npu_operators.experts.moe_routing import (
    _npu_moe_token_unpermute,
    _npu_moe_token_unpermute_with_routing_map,
    npu_moe_finalize_routing,
    npu_moe_token_permute,
    npu_moe_token_permute_with_routing_map,
    npu_moe_token_unpermute,
    npu_moe_token_unpermute_with_routing_map,
)
from pytest_msprobe.extensions.npu_operators.experts.routing_gradients import (
    npu_moe_token_permute_grad,
    npu_moe_token_permute_with_routing_map_grad,
    npu_moe_token_unpermute_grad,
    npu_moe_token_unpermute_with_routing_map_grad,
)
from tests.support.cann.examples import experts as expert_examples
from tests.support.cann.examples import routing as routing_examples
from tests.support.cann.examples import routing_map as map_examples
from tests.support.cann.operators import experts, routing, routing_map

FAMILIES = ((experts, expert_examples), (routing, routing_examples), (routing_map, map_examples))
EXAMPLES = [(family, name, call) for family, examples in FAMILIES for name, call in examples.EXAMPLES.items()]


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def grad_of(out: Tensor, grad: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(out, inputs, grad)


def test_the_gradient_of_sigmoid_gating_is_that_of_its_forward() -> None:
    x, grad = draw(4, 8).requires_grad_(), draw(4, 3, seed=1)
    y, chosen, norm = npu_moe_gating_top_k(x, 3, norm_type=1, routed_scaling_factor=2.0)
    wanted = grad_of(y, grad, x)[0]
    found = npu_moe_gating_top_k_backward(norm, grad, chosen, norm_type=1, routed_scaling_factor=2.0)
    torch.testing.assert_close(found, wanted)


def test_the_gradient_of_a_renormalized_gating_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="renorm"):
        npu_moe_gating_top_k_backward(draw(2, 4), draw(2, 1), torch.zeros(2, 1, dtype=torch.int32), renorm=1)


def test_softmax_over_the_chosen_alone_sums_to_one() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.0]]).log1p()
    y, chosen, softmax = npu_moe_gating_top_k_softmax_v2(logits, k=2, renorm=1, output_softmax=True)
    torch.testing.assert_close(y, torch.tensor([[2 / 3, 1 / 3]]))
    assert chosen.tolist() == [[1, 0]]
    assert softmax.numel() == 0


def test_an_unknown_renorm_is_an_error() -> None:
    with pytest.raises(ValueError, match="renorm 2"):
        npu_moe_gating_top_k_softmax_v2(draw(1, 2), renorm=2)


# Three copies on the cards 4, 6 and 7; one on card 2.
TABLE = torch.tensor([[3, 4, 6, 7], [1, 2, 0, 0]], dtype=torch.int32)
IDS = torch.tensor([[0, 1], [0, 1], [1, 0], [0, 0]], dtype=torch.int32)


@pytest.mark.parametrize(("rank", "card"), [(0, 4), (2, 4), (3, 6), (5, 6), (6, 7), (7, 7)])
def test_cards_share_the_copies_of_an_expert_evenly(rank: int, card: int) -> None:
    places, kept = npu_moe_update_expert(IDS, TABLE, local_rank_id=rank, world_size=8)
    assert places.tolist() == [[card, 2], [card, 2], [2, card], [card, card]]
    assert kept is None


def test_tokens_take_the_copies_of_an_expert_by_turns() -> None:
    places, _ = npu_moe_update_expert(IDS, TABLE, balance_mode=1)
    assert places.tolist() == [[4, 2], [6, 2], [2, 7], [4, 4]]


def test_experts_below_the_share_of_a_tokens_scales_are_cut() -> None:
    scales = torch.tensor([[0.6, 0.2], [0.6, 0.2]])
    threshold, active = torch.tensor([0.75, 0.26]), torch.tensor([True, False])
    _, kept = npu_moe_update_expert(
        IDS[:2], TABLE, expert_scales=scales, pruning_threshold=threshold, active_mask=active, balance_mode=1
    )
    assert kept is not None
    assert kept.tolist() == [[True, False], [False, False]]


@pytest.mark.parametrize("kwargs", [{}, {"balance_mode": 2}, {"balance_mode": 1, "expert_scales": draw(4, 2)}])
def test_arguments_that_say_too_little_for_a_balance_are_errors(kwargs: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="npu_moe_update_expert"):
        npu_moe_update_expert(IDS, TABLE, **kwargs)  # type: ignore[arg-type]


def test_the_number_of_copies_is_given_where_no_tensor_has_it() -> None:
    rows = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    out = npu_moe_finalize_routing(rows, None, None, None, None, torch.tensor([3, 2, 1, 0]), None, 0, 2)
    assert out.tolist() == [[10.0], [5.0]]


def test_the_gradient_of_permuting_is_that_of_its_forward() -> None:
    tokens, indices, grad = draw(4, 3).requires_grad_(), torch.tensor([[2, 0], [1, 2], [0, 2], [1, 0]]), draw(6, 3)
    permuted, places = npu_moe_token_permute(tokens, indices, 6)
    wanted = grad_of(permuted, grad, tokens)[0]
    torch.testing.assert_close(npu_moe_token_permute_grad(tokens, grad, indices, places), wanted)


def test_the_gradients_of_unpermuting_are_those_of_its_forward() -> None:
    tokens, probs, grad = draw(8, 3).requires_grad_(), draw(4, 2, seed=1).requires_grad_(), draw(4, 3, seed=2)
    places = torch.tensor([5, 0, 7, 2, 1, 3, 6, 4])
    wanted = grad_of(npu_moe_token_unpermute(tokens, places, probs), grad, tokens, probs)
    torch.testing.assert_close(npu_moe_token_unpermute_grad(tokens, grad, places, probs), wanted)


@pytest.mark.parametrize("padded", [False, True])
def test_the_gradients_of_permuting_by_a_map_are_those_of_its_forward(padded: bool) -> None:
    tokens, probs = draw(3, 4).requires_grad_(), draw(3, 2, seed=1).requires_grad_()
    routing_map = torch.tensor([[1, 0], [0, 1], [1, 0]])
    count = 4 if padded else 3
    permuted, chosen, places = npu_moe_token_permute_with_routing_map(
        tokens, routing_map, probs=probs, num_out_tokens=count, drop_and_pad=padded
    )
    assert chosen is not None
    grad, of_probs = draw(count, 4, seed=2), draw(count, seed=3)
    wanted = torch.autograd.grad((permuted, chosen), (tokens, probs), (grad, of_probs))
    found = npu_moe_token_permute_with_routing_map_grad(grad, of_probs, places, routing_map, 2, 3, padded)
    torch.testing.assert_close(found, wanted)


def test_the_gradients_of_unpermuting_by_a_padded_map_are_those_of_its_forward() -> None:
    tokens, probs = draw(4, 3).requires_grad_(), draw(3, 2, seed=1).requires_grad_()
    places, routing_map = torch.tensor([2, 0, 1, 2]), torch.ones(3, 2)
    grad = draw(3, 3, seed=2)
    out, rows, owners, _ = _npu_moe_token_unpermute_with_routing_map(
        tokens, places, [3, 3], probs=probs, routing_map=routing_map, drop_and_pad=True
    )
    assert rows is not None
    assert owners is not None
    wanted = grad_of(out, grad, tokens, probs)
    found = npu_moe_token_unpermute_with_routing_map_grad(grad, rows, owners, routing_map, tokens, probs, True, [3, 3])
    torch.testing.assert_close(found, wanted)


def test_unweighted_tokens_by_a_map_need_no_owners() -> None:
    tokens, places, grad = draw(6, 2).requires_grad_(), torch.tensor([3, 1, 0, 5, 4, 2]), draw(3, 2, seed=1)
    wanted = grad_of(npu_moe_token_unpermute_with_routing_map(tokens, places, [3, 2]), grad, tokens)[0]
    found, none = npu_moe_token_unpermute_with_routing_map_grad(grad, places, places, None, None, None, False, [3, 2])
    torch.testing.assert_close(found, wanted)
    assert none is None


def test_gradients_of_probabilities_need_the_tokens_and_the_map() -> None:
    places = torch.tensor([0, 1])
    with pytest.raises(ValueError, match="routing_map"):
        npu_moe_token_unpermute_with_routing_map_grad(draw(2, 2), places, places, None, None, draw(2, 2), False, [2, 2])


def test_unpermuting_keeps_its_tokens_only_for_the_gradient_of_probabilities() -> None:
    tokens, places = draw(2, 2), torch.tensor([1, 0])
    assert _npu_moe_token_unpermute(tokens, places)[1] is None
    kept = _npu_moe_token_unpermute(tokens, places, draw(2, 1))[1]
    assert kept is not None
    assert kept.equal(tokens)
