from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_msprobe.engine.replay.references import ReferenceRegistry

SECTION_OF_FUSED_APIS = """
NPU.npu_fast_gelu NPU.fast_gelu NPU.npu_swiglu NPU.npu_rms_norm NPU.npu_rotary_mul NPU.npu_scaled_masked_softmax
NPU.npu_linear NPU.npu_layer_norm_eval NPU.npu_group_norm_silu NPU.npu_mish NPU.npu_sort_v2
NPU.npu_confusion_transpose NPU.npu_moe_gating_top_k_softmax NPU.npu_apply_adam NPU.npu_apply_adam_w
NPU.npu_fusion_attention Aten.npu_fast_gelu_backward Aten.npu_swiglu_backward Aten.npu_rms_norm_backward
Aten.npu_rotary_mul_backward Aten.npu_scaled_masked_softmax_backward Aten.npu_linear_backward
Aten.npu_confusion_transpose_backward Aten.npu_fusion_attention_grad Aten.matmul_backward
""".split()


@pytest.mark.parametrize("name", SECTION_OF_FUSED_APIS)
def test_every_fused_api_of_the_accuracy_check_has_a_golden_definition(name: str) -> None:
    assert callable(ReferenceRegistry().get(name))


def test_every_listed_name_can_be_loaded() -> None:
    registry = ReferenceRegistry()
    for name in registry.names():
        assert callable(registry.get(name)), name


def test_an_unknown_api_has_no_golden_definition() -> None:
    assert ReferenceRegistry().get("NPU.npu_unheard_of") is None


@pytest.mark.parametrize(
    ("recorded", "defined"),
    [
        ("Aten.npu_swiglu_backward.default", "Aten.npu_swiglu_backward"),
        ("Aten.matmul_backward.default", "Aten.matmul_backward"),
        ("Aten.npu_sort_v2.out", "NPU.npu_sort_v2"),
    ],
)
def test_an_overload_of_level_aten_has_the_definition_of_its_operator(recorded: str, defined: str) -> None:
    registry = ReferenceRegistry()
    assert registry.get(recorded) is registry.get(defined)
    assert registry.get(recorded) is not None


def test_an_operator_of_torch_itself_has_no_definition() -> None:
    assert ReferenceRegistry().get("Aten.add.Tensor") is None


def test_an_added_definition_is_found_under_its_name() -> None:
    registry = ReferenceRegistry()
    registry.add("NPU.npu_mine", abs)
    assert registry.get("NPU.npu_mine") is abs
    assert "NPU.npu_mine" in registry.names()


def test_a_name_added_twice_is_refused_with_both_origins() -> None:
    registry = ReferenceRegistry()
    registry.add("NPU.npu_mine", abs)
    with pytest.raises(ValueError, match=r"NPU\.npu_mine .*builtins\.abs and builtins\.len"):
        registry.add("NPU.npu_mine", len)


def test_a_built_in_name_is_refused_with_its_module() -> None:
    with pytest.raises(ValueError, match=r"npu_operators\.layers\.activation\.npu_mish and builtins\.abs"):
        ReferenceRegistry().add("NPU.npu_mish", abs)


def test_a_name_without_its_type_is_refused() -> None:
    with pytest.raises(ValueError, match="'npu_mine' is not an API name"):
        ReferenceRegistry().add("npu_mine", abs)


def test_a_definition_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="must be callable, not int"):
        ReferenceRegistry().add("NPU.npu_mine", 3)  # type: ignore[arg-type]


def test_the_registry_does_not_import_torch() -> None:
    code = (
        "import sys; from pytest_msprobe.engine.replay.references import ReferenceRegistry as R; "
        "R().names(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
