"""The table of traits is about operations that there are, and says what is special about each in one place."""

from __future__ import annotations

import pytest

from msprobe_hooks.dump.names import ApiName
from pytest_msprobe.engine.replay.ops.lookup import HOMES, resolve
from pytest_msprobe.engine.replay.ops.op_info import TABLE, op_info
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.results.outcomes import Skip

# It comes with torch_npu, and has no golden definition.
OF_TORCH_NPU = {"empty_with_format"}
# Primitives of MindSpore that no function of torch stands for; tests/mindspore holds them to the table of primitives.
OF_MINDSPORE = {
    "BatchNorm", "DType", "Empty", "EmptyLike", "Gather", "LSTM", "NewEmpty", "SoftmaxCrossEntropyWithLogits",
}  # fmt: skip
# A function of MindSpore.
ELSEWHERE = {"flash_attention_score"}
# This torch may not have them yet.
OF_NEWER_TORCH = {
    "_cslt_sparse_mm", "_cudnn_attention_backward", "_cudnn_attention_forward", "_grouped_mm",
    "_flash_attention_forward_no_dropout_inplace",
    "_jagged_to_padded_dense_forward", "_nested_view_from_jagged", "_nested_view_from_jagged_copy",
    "_padded_dense_to_jagged_forward", "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward", "_scaled_grouped_mm", "_scaled_grouped_mm_v2",
    "_sparse_semi_structured_addmm", "_sparse_semi_structured_mm", "grouped_mm", "scaled_grouped_mm",
    "scaled_mm",
}  # fmt: skip


@pytest.mark.parametrize("operation", sorted(set(TABLE) - OF_TORCH_NPU - OF_MINDSPORE - ELSEWHERE))
def test_each_operation_with_a_row_is_one_of_torch_or_has_a_golden_definition(operation: str) -> None:
    if operation in OF_NEWER_TORCH and not resolves("Aten", operation) and not resolves("Functional", operation):
        pytest.skip("this torch does not have it")
    assert any(resolves(kind, operation) for kind in (*HOMES, "NPU")) or resolves("NPU", f"atb.{operation}")


@pytest.mark.parametrize("operation", sorted(OF_TORCH_NPU | OF_MINDSPORE | ELSEWHERE))
def test_what_is_said_to_be_another_package_s_is_not_torch_s(operation: str) -> None:
    assert operation in TABLE
    assert not any(resolves(kind, operation) for kind in (*HOMES, "NPU"))


@pytest.mark.parametrize("operation", TABLE)
def test_a_row_says_something(operation: str) -> None:
    assert TABLE[operation] != OpInfo()


@pytest.mark.parametrize("api", ["linalg.inv", "inv", "inv.out"])
def test_a_row_is_found_whatever_the_namespace_and_the_overload(api: str) -> None:
    assert op_info(api) is TABLE["inv"]


@pytest.mark.parametrize("api", ["erf", "erf.out", "special.erf", "", "no such operation"])
def test_an_operation_without_a_row_has_nothing_special(api: str) -> None:
    assert op_info(api) == OpInfo()


@pytest.mark.parametrize(
    ("api", "recurrent"), [("lstm", True), ("gru", True), ("lstm_cell", False), ("gru_cell", False)]
)
def test_the_cell_of_a_recurrent_layer_is_made_of_plain_products(api: str, recurrent: bool) -> None:
    assert op_info(api).recurrent == recurrent


def resolves(kind: str, operation: str) -> bool:
    try:
        resolve(ApiName(kind, operation, 0, "forward"), ReferenceRegistry())
    except Skip:
        return False
    return True
