"""Products of groups of rows, against one product per row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.engine.replay.references.layers.linear import npu_bmmV2
from pytest_msprobe.engine.replay.references.matmul.feed_forward import npu_ffn
from pytest_msprobe.engine.replay.references.matmul.grouped_matmul import npu_grouped_matmul
from pytest_msprobe.engine.replay.references.matmul.permuted_matmul import npu_transpose_batchmatmul

ACTIVATIONS = {
    "relu": lambda x: max(x, 0.0),
    "gelu_tanh": lambda x: 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "fastgelu": lambda x: x / (1 + math.exp(-1.702 * x)),
    "silu": lambda x: x / (1 + math.exp(-x)),
}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor, expected: object) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-13)


def row_by_row(x: Tensor, weight: Tensor, bias: Tensor, owner: list[int]) -> np.ndarray:
    return np.stack([x[i].numpy() @ weight[g].numpy() + bias[g].numpy() for i, g in enumerate(owner)])


X, WEIGHT, BIAS = draw(5, 4), draw(3, 4, 2, seed=1), draw(3, 2, seed=2)
# the second group is empty
OWNER, ENDS, SIZES = [0, 0, 2, 2, 2], [2, 2, 5], [2, 0, 3]


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
        ({"scale": [torch.ones(3, 2, dtype=torch.int64)], "output_dtype": torch.float16}, "packed_scale"),
        ({"scale": [BIAS]}, "result_of_int8"),
        ({"offset": [BIAS]}, "offset"),
        ({"group_type": 2}, "group_type"),
        ({"group_list_type": 2}, "group_list_type"),
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


@pytest.mark.parametrize("activation", ["fastgelu", "relu", "silu"])
@pytest.mark.parametrize("groups", [{"expert_tokens": SIZES}, {"expert_tokens_index": ENDS}])
def test_a_feed_forward_layer_runs_by_expert(activation: str, groups: dict[str, Any]) -> None:
    second, bias2 = draw(3, 2, 4, seed=5), draw(3, 4, seed=6)
    hidden = np.vectorize(ACTIVATIONS[activation])(row_by_row(X, WEIGHT, BIAS, OWNER))
    expected = row_by_row(torch.from_numpy(hidden), second, bias2, OWNER)
    close(npu_ffn(X, WEIGHT, second, activation, bias1=BIAS, bias2=bias2, **groups), expected)


def test_a_feed_forward_layer_without_experts_takes_any_number_of_dimensions() -> None:
    x, first, second = draw(2, 3, 4), draw(4, 6, seed=1), draw(6, 4, seed=2)
    expected = np.maximum(x.numpy() @ first.numpy(), 0) @ second.numpy()
    close(npu_ffn(x, first, second, "relu"), expected)


@pytest.mark.parametrize("activation", ["gelu", "geglu", "swiglu", "reglu"])
def test_an_activation_that_the_documentation_leaves_open_is_named(activation: str) -> None:
    with pytest.raises(NotImplementedError, match=f"activation {activation}"):
        npu_ffn(X, WEIGHT[0], WEIGHT[0].T, activation)


def test_batches_are_broadcast_and_the_result_reshaped() -> None:
    left, right = draw(2, 3, 4), draw(4, 5, seed=1)
    expected = np.einsum("bij,jk->bik", left.numpy(), right.numpy())
    close(npu_bmmV2(left, right, []), expected)
    close(npu_bmmV2(left, right, [6, 5]), expected.reshape(6, 5))


@pytest.mark.parametrize("perm", [None, [1, 0, 2]])
def test_a_batched_product_is_permuted_before_and_after(perm: list[int] | None) -> None:
    left, right = draw(2, 3, 4), draw(2, 4, 5, seed=1)
    given = left if perm is None else left.transpose(0, 1)
    close(npu_transpose_batchmatmul(given, right, perm_x1=perm), np.einsum("bij,bjk->ibk", left.numpy(), right.numpy()))
    with pytest.raises(NotImplementedError, match="batch_split_factor"):
        npu_transpose_batchmatmul(left, right, batch_split_factor=2)
