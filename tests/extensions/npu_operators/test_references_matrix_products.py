"""Matrix products with what comes before and behind them, against independent computations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.matmul.fused_layers import (
    npu_fused_cross_entropy_loss_with_max_sum,
    npu_fused_linear_cross_entropy_loss_with_max_sum_backward,
    npu_fused_linear_online_max_sum,
)
from pytest_msprobe.extensions.npu_operators.matmul.permuted_matmul import (
    npu_batch_gather_matmul,
    npu_bmm_v2_mat1_backward,
    npu_bmm_v2_mat2_backward,
    npu_bmmV2,
    npu_fused_matmul,
    npu_transpose_batchmatmul,
)
from pytest_msprobe.extensions.npu_operators.matmul.quantized_matmul import npu_ffn
from tests.support.cann.examples import matrix_products, vocabulary_loss
from tests.support.cann.operators import matrix_products as independent_products
from tests.support.cann.operators import vocabulary_loss as independent_loss
from tests.support.cann.row_products import ACTIVATIONS, BIAS, ENDS, OWNER, SIZES, WEIGHT, X, close, draw, row_by_row

EXAMPLES = {
    **{name: (independent_products, make) for name, make in matrix_products.EXAMPLES.items()},
    **{name: (independent_loss, make) for name, make in vocabulary_loss.EXAMPLES.items()},
}


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


def test_gradients_of_a_batched_product_are_those_of_autograd() -> None:
    left, right = draw(2, 3, 4).requires_grad_(), draw(4, 5, seed=1).requires_grad_()
    grad = draw(6, 5, seed=2)
    wanted = torch.autograd.grad(npu_bmmV2(left, right, [6, 5]), (left, right), grad)
    close(npu_bmm_v2_mat1_backward(grad, left, right, [2, 3, 4]), wanted[0])
    close(npu_bmm_v2_mat2_backward(grad, left, right, [4, 5]), wanted[1])


@pytest.mark.parametrize("kind", ["", "add", "mul", "gelu_erf", "gelu_tanh", "relu"])
def test_a_fused_product_has_gradients(kind: str) -> None:
    x1, x2, x3 = (draw(*shape, seed=seed).requires_grad_() for seed, shape in enumerate([(3, 4), (4, 2), (3, 2)]))
    third = x3 if kind in ("add", "mul") else None
    given = (x1, x2) if third is None else (x1, x2, x3)
    assert torch.autograd.gradcheck(lambda *_: npu_fused_matmul(x1, x2, x3=third, fused_op_type=kind), given)


def test_what_a_fused_product_does_not_know_is_named() -> None:
    with pytest.raises(NotImplementedError, match="npu_fused_matmul has no golden definition with fused_op_type tanh"):
        npu_fused_matmul(X, WEIGHT[0], fused_op_type="tanh")


def test_gathered_weights_of_another_width_than_the_slice_are_refused() -> None:
    with pytest.raises(ValueError, match="y_slice_size is 3 for a weight_b of 2 rows"):
        npu_batch_gather_matmul(draw(1, 5), draw(1, 4), draw(1, 1, 2, 4), torch.tensor([0]), y_slice_size=3)


def test_ranks_that_share_a_vocabulary_have_the_loss_and_the_gradients_of_the_whole() -> None:
    x, weight, target = draw(9, 4).requires_grad_(), draw(6, 4, seed=1).requires_grad_(), torch.arange(9) % 6
    parts = [npu_fused_linear_online_max_sum(x, weight[i : i + 3], target, i, i + 2, True) for i in (0, 3)]
    highest = torch.stack([part[0] for part in parts]).amax(0)
    total = sum(part[1] * (part[0] - highest).exp() for part in parts)
    # A rank's predicted logit is counted from its own maximum, and is zero where the target is another rank's.
    predicted = sum(
        torch.where(_bits(part[3], 9), torch.zeros_like(part[2]), part[2] + part[0] - highest) for part in parts
    )
    assert isinstance(total, Tensor)
    assert isinstance(predicted, Tensor)
    wanted = F.cross_entropy(x @ weight.T, target, reduction="none")
    grad = draw(9, seed=2)
    of_x, of_weight = torch.autograd.grad(wanted, (x, weight), grad)
    found_x = torch.zeros_like(x)
    for i, part in zip((0, 3), parts, strict=True):
        loss, softmax = npu_fused_cross_entropy_loss_with_max_sum(
            highest, total, predicted, vocab_parallel_logits=part[5]
        )
        close(loss, wanted.detach())
        own = weight[i : i + 3]
        for given in ({"softmax": softmax}, {"logits_max": highest, "sum_exp_logits": total}):
            to_x, to_own = npu_fused_linear_cross_entropy_loss_with_max_sum_backward(
                grad,
                x,
                own,
                part[3],
                part[4],
                **given,  # type: ignore[arg-type]
            )
            close(to_own, of_weight[i : i + 3])
        found_x += to_x
    close(found_x, of_x)


def _bits(mask: Tensor, count: int) -> Tensor:
    return torch.tensor([bit == "1" for byte in mask.tolist() for bit in f"{byte:08b}"])[:count]


def test_gradients_of_a_shared_loss_need_the_softmax_or_its_parts() -> None:
    with pytest.raises(ValueError, match="needs softmax, or logits_max and sum_exp_logits"):
        npu_fused_linear_cross_entropy_loss_with_max_sum_backward(X[0], X, X, X, X)


def test_what_is_between_layers_of_int8_is_rounded_half_to_even() -> None:
    x, one = torch.tensor([[1], [3]], dtype=torch.int8), torch.ones(1, 1, dtype=torch.int8)
    scales = {"scale": torch.tensor([0.5]), "deq_scale1": torch.ones(1), "deq_scale2": torch.ones(1)}
    # 0.5 becomes 0, 1.5 becomes 2.
    assert npu_ffn(x, one, one, "relu", **scales).tolist() == [[0.0], [2.0]]
