"""Products of groups of rows, against one product per row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.matmul.fused_layers import (
    npu_grouped_matmul_finalize_routing,
    npu_grouped_matmul_swiglu_quant,
    npu_grouped_matmul_swiglu_quant_v2,
    npu_quant_grouped_matmul_dequant,
)
from pytest_msprobe.extensions.npu_operators.matmul.grouped_matmul import (
    npu_add_quant_gmm,
    npu_grouped_matmul,
    npu_grouped_matmul_add,
)
from pytest_msprobe.extensions.npu_operators.matmul.operands import by_halves
from tests.support.cann.row_products import ACTIVATIONS, BIAS, ENDS, OWNER, SIZES, WEIGHT, X, close, draw, row_by_row


@pytest.mark.parametrize("weights", [[WEIGHT], list(WEIGHT)])
@pytest.mark.parametrize("groups", [{"group_list": ENDS}, {"group_list": torch.tensor(SIZES), "group_list_type": 1}])
def test_each_group_of_rows_meets_its_weight(weights: list[Tensor], groups: dict[str, Any]) -> None:
    biases = [BIAS] if len(weights) == 1 else list(BIAS)
    (joined,) = npu_grouped_matmul([X], weights, bias=biases, split_item=2, group_type=0, **groups)
    close(joined, row_by_row(X, WEIGHT, BIAS, OWNER))
    parts = npu_grouped_matmul([X], weights, bias=biases, **groups)
    assert [len(part) for part in parts] == SIZES
    assert torch.cat(parts).equal(joined)


def test_each_of_several_inputs_meets_its_weight() -> None:
    parts = [draw(2, 4), draw(3, 4, seed=1)]
    first, second = npu_grouped_matmul(parts, [WEIGHT[0], WEIGHT[1]])
    close(first, parts[0].numpy() @ WEIGHT[0].numpy())
    close(second, parts[1].numpy() @ WEIGHT[1].numpy())


@pytest.mark.parametrize(("kind", "name"), [(1, "relu"), (2, "gelu_tanh"), (4, "fastgelu"), (5, "silu")])
def test_the_activation_follows(kind: int, name: str) -> None:
    (found,) = npu_grouped_matmul([X], [WEIGHT], group_list=ENDS, split_item=3, act_type=kind)
    plain = row_by_row(X, WEIGHT, torch.zeros_like(BIAS), OWNER)
    close(found, np.vectorize(ACTIVATIONS[name])(plain))


def test_a_weight_of_int8_is_widened() -> None:
    weight = torch.randint(-128, 128, (3, 4, 2), dtype=torch.int8, generator=torch.Generator().manual_seed(1))
    scale, offset = draw(3, 2, seed=3), draw(3, 2, seed=4)
    widened = (weight.double() + offset.unsqueeze(1)) * scale.unsqueeze(1)
    (found,) = npu_grouped_matmul(
        [X], [weight], antiquant_scale=[scale], antiquant_offset=[offset], group_list=ENDS, split_item=2
    )
    close(found, row_by_row(X, widened, torch.zeros_like(BIAS), OWNER))


@pytest.mark.parametrize("of_tokens", [False, True])
@pytest.mark.parametrize("whole_bias", [False, True])
def test_products_of_int8_are_scaled_by_group_and_by_token(of_tokens: bool, whole_bias: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-128, 128, (5, 4), dtype=torch.int8, generator=generator)
    weight = torch.randint(-128, 128, (3, 4, 2), dtype=torch.int8, generator=generator)
    scale, tokens = draw(3, 2, seed=3), draw(5, seed=4)
    bias = torch.randint(-999, 999, (3, 2), dtype=torch.int32, generator=generator) if whole_bias else BIAS
    expected = np.empty((5, 2))
    for i, g in enumerate(OWNER):
        for j in range(2):
            total = sum(int(x[i, k]) * int(weight[g, k, j]) for k in range(4)) + (int(bias[g, j]) if whole_bias else 0)
            scaled = total * float(scale[g, j]) * (float(tokens[i]) if of_tokens else 1)
            expected[i, j] = max(scaled + (0 if whole_bias else float(bias[g, j])), 0)
    (found,) = npu_grouped_matmul(
        [x], [weight], bias=[bias], scale=[scale], per_token_scale=[tokens] if of_tokens else None, group_list=ENDS,
        split_item=2, act_type=1, output_dtype=torch.float64,
    )  # fmt: skip
    close(found, expected)


def test_inputs_and_weights_have_gradients() -> None:
    inputs = tuple(each.clone().requires_grad_() for each in (X, WEIGHT, BIAS))

    def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return npu_grouped_matmul([x], [weight], bias=[bias], group_list=ENDS, split_item=2, act_type=5)[0]

    assert torch.autograd.gradcheck(product, inputs)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"activation_input": [BIAS]}, "activation_input"),
        ({"group_type": 1}, "group_type"),
        ({"group_list_type": 3}, "group_list_type"),
        ({"act_type": 3}, "act_type"),
    ],
)
def test_what_has_no_golden_definition_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"npu_grouped_matmul has no golden definition with {named}"):
        npu_grouped_matmul([X], [WEIGHT], **{"group_list": ENDS, **options})


def test_groups_that_have_more_than_the_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="do not share out 5 rows"):
        npu_grouped_matmul([X], [WEIGHT], group_list=[1, 2, 6])
    with pytest.raises(ValueError, match="needs group_list for one x and 3 weights"):
        npu_grouped_matmul([X], [WEIGHT])


def test_rows_behind_the_last_group_do_not_change_those_of_the_groups() -> None:
    joined = {"group_list": [1, 2, 4], "split_item": 2}
    (found,), (whole,) = (npu_grouped_matmul([rows], [WEIGHT], **joined) for rows in (X, X[:4]))
    assert found.shape == (5, whole.shape[1])
    assert torch.equal(found[:4], whole)


def test_an_offset_follows_the_scale() -> None:
    x, w = torch.tensor([[2]], dtype=torch.int8), torch.tensor([[3]], dtype=torch.int8)
    scale, offset = torch.tensor([0.5]), torch.tensor([1.25])
    (found,) = npu_grouped_matmul([x], [w], scale=[scale], offset=[offset], output_dtype=torch.float32, split_item=2)
    assert found.tolist() == [[4.25]]


def test_groups_of_what_is_summed_over_give_a_product_each() -> None:
    left, right = draw(4, 5), draw(5, 3, seed=1)
    (found,) = npu_grouped_matmul([left], [right], group_list=[2, 2, 5], group_type=2, split_item=3)
    close(found, [left[:, :2] @ right[:2], torch.zeros(4, 3), left[:, 2:] @ right[2:]])
    parts = npu_grouped_matmul([left], [right], group_list=[2, 2, 5], group_type=2)
    assert torch.stack(parts).equal(found)


def test_products_by_halves_are_those_of_the_whole_where_the_assisting_sum_is_right() -> None:
    x = torch.tensor([[-128, 127, 5, -3]], dtype=torch.int8)
    weight = torch.tensor([[-8, 7, 1, 0, 3, -2, 6, -5]] * 4, dtype=torch.int8)
    scale = torch.full((8,), 0.5)
    assist = 8 * weight.sum(0) * 0.5
    found = by_halves(x, weight, scale.double(), torch.tensor([2.0]), assist)
    close(found, x.double() @ weight.double())


def test_what_is_routed_back_adds_up_at_its_token() -> None:
    x, w = torch.tensor([[1], [2], [4]], dtype=torch.int8), torch.tensor([[[1]], [[10]]], dtype=torch.int8)
    found = npu_grouped_matmul_finalize_routing(
        x, w, torch.tensor([1, 2]), scale=torch.ones(2, 1), pertoken_scale=torch.ones(3),
        row_index=torch.tensor([1, 1, 0]),
        logit=torch.tensor([1.0, 0.5, 2.0]), shared_input=torch.tensor([[3.0]]), shared_input_offset=1, output_bs=2,
    )  # fmt: skip
    assert found.tolist() == [[80.0], [14.0]]


def test_rows_behind_the_last_group_are_quantized_to_zeros() -> None:
    x, w = torch.full((2, 1), 127, dtype=torch.int8), torch.full((1, 1, 2), 1, dtype=torch.int8)
    y, scale = npu_grouped_matmul_swiglu_quant_v2(x, [w], [torch.ones(1, 2)], torch.ones(2), torch.tensor([1]))
    assert y.tolist() == [[127], [0]]
    assert scale.tolist() == [127.0, 0.0]


def test_accumulated_products_have_gradients() -> None:
    inputs = tuple(draw(*shape, seed=seed).requires_grad_() for seed, shape in enumerate([(2, 3, 2), (5, 3), (5, 2)]))
    groups = torch.tensor([2, 5])
    assert torch.autograd.gradcheck(lambda *given: npu_grouped_matmul_add(*given, groups), inputs)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: npu_grouped_matmul_add(X, X, X, X, transpose_x=False), "transpose_x_false"),
        (lambda: npu_grouped_matmul_swiglu_quant(X, X, X, X, X, bias=X), "bias"),
        (lambda: npu_grouped_matmul_swiglu_quant_v2(X, [X], [X], X, X, quant_dtype=24), "quant_dtype"),
        (lambda: npu_grouped_matmul_finalize_routing(X, X, X, offset=X), "offset"),
        (lambda: npu_quant_grouped_matmul_dequant(X, X, X, X, x_offset=X), "x_offset"),
        (lambda: npu_add_quant_gmm(X, X, X, X, X, group_sizes=[1, 1, 32]), "group_sizes"),
    ],
)
def test_what_the_fused_products_leave_open_is_named(call: Callable[[], Any], named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"has no golden definition with {named}"):
        call()
