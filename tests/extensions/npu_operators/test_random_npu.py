"""Results that an NPU draws: right ones hold, and each fault is found."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_msprobe.engine.replay.ops.op_info import random_property
from pytest_msprobe.engine.replay.random_apis.samples import judge_draws
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.pytree import map_tensors
from tests.support.cann.examples.drawn import EXAMPLES
from tests.support.cann.operators import drawn, legacy_attention
from tests.support.dumps.random_results import outcome, property_of

SEED = 3


def made(name: str, seed: int = SEED) -> tuple[str, tuple[Any, ...], dict[str, Any], Any]:
    """Return an example's operator, its arguments before the call, and its results."""
    operator = name.partition("-")[0]
    call = EXAMPLES[name](torch.Generator().manual_seed(seed))
    torch.manual_seed(seed)
    args = tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in call.args)
    return operator, call.args, call.kwargs, getattr(drawn, operator)(*args, **call.kwargs)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_a_right_device_draws_holds(name: str, seed: int) -> None:
    operator, args, kwargs, output = made(name, seed)
    assert outcome(operator, output, *args, **kwargs) == "pass"


def test_a_mask_of_another_share_is_found() -> None:
    operator, args, kwargs, output = made("_npu_dropout_gen_mask")
    assert outcome(operator, ~output, *args, **kwargs) == "fail"
    assert outcome(operator, output[:-1], *args, **kwargs) == "fail"


def test_a_mask_that_another_call_draws_anew_is_judged_alike() -> None:
    api = "npu_dropout_gen_mask"
    torch.manual_seed(SEED)
    mask = drawn.npu_dropout_gen_mask([32, 16], 0.3)
    assert outcome(api, mask, [32, 16], 0.3, dtype=torch.float32) == "pass"
    assert outcome(api, ~mask, [32, 16], 0.3) == "fail"
    again = judge_draws(property_of(api, [32, 16], 0.3), itertools.repeat(mask))
    assert again.outcome == "fail"


def test_a_mask_without_dropout_keeps_everything() -> None:
    full = torch.full((16,), 255, dtype=torch.uint8)
    assert outcome("npu_dropout_gen_mask", full, [100], 0.0) == "pass"
    full[3] = 254
    assert outcome("npu_dropout_gen_mask", full, [100], 0.0) == "fail"


def test_bits_are_held_against_the_elements_that_they_keep() -> None:
    operator, args, kwargs, (values, mask) = made("_npu_dropout")
    other = drawn.npu_dropout_gen_mask(values.shape, args[1])
    assert outcome(operator, (values, other), *args, **kwargs) == "fail"
    gradient = values / args[0]
    verdict = property_of(operator, *args).check_backward((values, mask), [torch.ones_like(values)], [gradient])
    assert verdict is not None
    assert verdict.outcome == "pass"


def test_bits_of_a_short_vector_are_not_taken_for_its_bytes() -> None:
    x = torch.ones(16)
    mask = torch.zeros(16, dtype=torch.uint8)
    mask[0], mask[1] = 0b01010101, 0b00110011
    kept = torch.tensor([1.0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0, 0])
    assert outcome("_npu_dropout", (2 * kept, mask), x, 0.5) == "pass"


def test_an_exponential_of_another_rate_is_found() -> None:
    operator, args, kwargs, output = made("npu_sim_exponential_")
    assert outcome(operator, 2 * output, *args, **kwargs) == "fail"


def test_chosen_places_are_true_different_and_from_everywhere() -> None:
    operator, args, kwargs, (places, mask) = made("npu_random_choice_with_mask")
    again = places.clone()
    again[1] = again[0]
    assert outcome(operator, (again, mask), *args, **kwargs) == "fail"
    untrue = places.clone()
    untrue[0] = (~args[0]).nonzero()[0].int()
    assert outcome(operator, (untrue, mask), *args, **kwargs) == "fail"
    beyond = places + torch.tensor([0, 30], dtype=torch.int32)
    assert outcome(operator, (beyond, mask), *args, **kwargs) == "fail"
    assert outcome(operator, (places, ~mask), *args, **kwargs) == "fail"
    in_order = (args[0].nonzero()[:60].int(), torch.ones(60, dtype=torch.bool))
    assert outcome(operator, in_order, args[0], 60) == "fail"


def test_a_subsample_keeps_as_many_labels_as_it_must() -> None:
    operator, args, kwargs, output = made("npu_sub_sample")
    fewer = output.clone()
    fewer[(fewer == 1).nonzero()[0]] = -1
    assert outcome(operator, fewer, *args, **kwargs) == "fail"
    turned = output.clone()
    turned[(turned == 1).nonzero()[0]] = 0
    assert outcome(operator, turned, *args, **kwargs) == "fail"


@pytest.mark.parametrize("name", ["npu_top_k_top_p", "npu_top_k_top_p-by_number", "npu_top_k_top_p-by_share"])
def test_a_score_that_is_left_out_or_changed_is_found(name: str) -> None:
    operator, args, kwargs, output = made(name)
    for change in (lambda row: row.fill_(-torch.inf), lambda row: row.mul_(1.01), lambda row: row.copy_(args[0][0])):
        wrong = output.clone()
        change(wrong[0])
        assert outcome(operator, wrong, *args, **kwargs) == "fail"


def test_a_sum_at_its_bound_leaves_the_score_open() -> None:
    scores, p = torch.tensor([[0.0, 1e-6, 5.0]]), torch.ones(1) - float(torch.tensor([0.0, 0.0, 5.0]).softmax(0)[0])
    for first in (0.0, -torch.inf):
        assert outcome("npu_top_k_top_p", torch.tensor([[first, 1e-6, 5.0]]), scores, p) == "pass"
    assert outcome("npu_top_k_top_p", torch.tensor([[0.0, 1e-6, -torch.inf]]), scores, p) == "fail"


def test_of_equal_scores_at_the_end_any_may_be_left() -> None:
    scores, one = torch.tensor([[2.0, 2.0, 0.0]]), torch.ones(1)
    for token in (0, 1):
        assert outcome("npu_top_k_top_p_sample", torch.tensor([token]), scores, one.int(), one) == "pass"
    assert outcome("npu_top_k_top_p_sample", torch.tensor([2]), scores, one.int(), one) == "fail"


@pytest.mark.parametrize("name", ["npu_top_k_top_p_sample", "npu_top_k_top_p_sample-greatest"])
def test_a_token_without_the_largest_weight_is_found(name: str) -> None:
    operator, args, kwargs, (tokens, scores) = made(name)
    least = args[0].argmin(-1)
    for row in range(4):
        wrong = tokens.clone()
        wrong[row] = least[row]
        assert outcome(operator, (wrong, scores), *args, **kwargs) == "fail"
    assert outcome(operator, (tokens + 1000, scores), *args, **kwargs) == "fail"


def test_a_token_that_was_cut_off_is_not_drawn() -> None:
    operator, args, kwargs, (tokens, scores) = made("npu_top_k_top_p_sample-multinomial")
    wrong = tokens.clone()
    wrong[0] = args[0][0].argmin()
    assert outcome(operator, (wrong, scores), *args, **kwargs) == "fail"
    assert outcome(operator, (tokens, scores + 1), *args, **kwargs) == "fail"


def test_dropout_behind_a_softmax_follows_its_mask() -> None:
    generator = torch.Generator().manual_seed(1)
    scores, mask = (torch.randn(2, 4, 16, 16, generator=generator).half() for _ in range(2))
    args = (scores, mask, 0.5, 0.25, -1)
    torch.manual_seed(0)
    kept, weights, dropped = legacy_attention.npu_dropout_with_add_softmax(*args)
    api = "npu_dropout_with_add_softmax"
    assert outcome(api, (kept, weights, dropped), *args) == "pass"
    assert outcome(api, (1 - kept, weights, dropped), *args) == "fail"
    assert outcome(api, (kept, weights, dropped * 0.75), *args) == "fail"
    assert random_property(api, (*args[:3], 0.0, -1), {}) is None


def test_dropped_attention_scores_are_averages_of_the_values() -> None:
    q, k, v = (torch.rand(1, 2, 8, 4) for _ in range(3))
    args = (q, k, v, torch.zeros(1, 1, 8, 8), 0.5, 0.5)
    context, *_ = legacy_attention.npu_fused_attention_score_fwd(*args)
    assert outcome("npu_fused_attention_score", context, *args) == "pass"
    assert outcome("npu_fused_attention_score", context + 3, *args) == "fail"
    assert random_property("npu_fused_attention_score", (*args[:5], 1.0), {}) is None


def test_an_attention_layer_is_drawn_only_where_it_has_no_mask() -> None:
    args = [torch.zeros(1)] * 12
    sizes = (2, 4, 3, 3, 0.5, True)
    assert random_property("npu_multi_head_attention", (*args, None, *sizes), {}) is not None
    assert random_property("npu_multi_head_attention", (*args, torch.zeros(1), *sizes), {}) is None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_golden_definition_draws_holds(name: str, seed: int) -> None:
    operator = name.partition("-")[0]
    call = EXAMPLES[name](torch.Generator().manual_seed(seed))
    golden = ReferenceRegistry().get(f"NPU.{operator}")
    assert golden is not None
    torch.manual_seed(seed)
    args = tuple(arg.clone() if isinstance(arg, Tensor) else arg for arg in call.args)
    assert outcome(operator, golden(*args, **call.kwargs), *call.args, **call.kwargs) == "pass"


def test_a_golden_definition_draws_the_same_mask_from_the_same_seed() -> None:
    golden = ReferenceRegistry().get("NPU._npu_dropout_gen_mask")
    assert golden is not None
    first, again, other = (golden(torch.zeros(2), [30, 20], 0.3, 2, offset) for offset in (100, 100, 200))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_records_of_drawing_operators_are_judged(recorder: Any, check: Any, device_that: Any) -> None:
    def alter(func: Any, args: Any, kwargs: Any) -> Any:
        return map_tensors(torch.zeros_like, func(*args, **kwargs))

    for made_record in (
        recorder.NPU.npu_dropout_gen_mask([64, 32], 0.3, dtype=torch.float32),
        recorder.NPU._npu_dropout(torch.ones(64, 32), 0.3),
        recorder.NPU.npu_sim_exponential_(torch.ones(64, 32)),
        recorder.NPU.npu_top_k_top_p(torch.randn(4, 100), torch.full((4,), 0.9), torch.full((4,), 50)),
    ):
        assert check(made_record).forward.outcome == "pass"
        assert check(made_record, device=device_that(alter)).forward.outcome == "fail"
