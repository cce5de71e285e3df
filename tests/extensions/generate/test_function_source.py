from __future__ import annotations

import operator

import pytest
import torch

from msprobe_hooks.dump.names import parse_api_name
from pytest_msprobe.engine.replay.ops.lookup import resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.extensions.generate.source_format import function_of
from pytest_msprobe.results.outcomes import Skip

REFERENCES = ReferenceRegistry()


@pytest.mark.parametrize(
    ("api", "spelling"),
    [
        ("Functional.softmax", "torch.nn.functional.softmax"),
        ("Torch.matmul", "torch.matmul"),
        ("Torch.linalg.norm", "torch.linalg.norm"),
        ("Torch.det", "torch.det"),
        ("Torch.solve_ex", "torch.linalg.solve_ex"),
        ("Tensor.__iadd__", "torch.Tensor.__iadd__"),
        ("Aten.add_.Tensor", "torch.ops.aten.add_.Tensor"),
        ("VF.lstm", "torch._VF.lstm"),
    ],
)
def test_the_spelling_is_the_function_that_the_record_names(api: str, spelling: str) -> None:
    name = parse_api_name(f"{api}.0.forward")
    assert function_of(name, REFERENCES).spelling == spelling
    assert eval(spelling, {"torch": torch}) == resolve(name, REFERENCES)


def test_a_property_is_read_by_an_attrgetter() -> None:
    function = function_of(parse_api_name("Tensor.T.0.forward"), REFERENCES)
    assert eval(function.spelling, {"operator": operator})(torch.ones(2, 3)).shape == (3, 2)
    assert function.imports == "import operator"


def test_an_npu_api_runs_the_devices_own_operation_and_names_its_golden_definition() -> None:
    function = function_of(parse_api_name("NPU.npu_rms_norm.0.forward"), REFERENCES)
    assert "torch.ops.npu.npu_rms_norm(*args, **kwargs)" in function.definition
    assert function.golden == "pytest_msprobe.extensions.npu_operators.layers.normalization.npu_rms_norm"


def test_an_api_that_only_has_a_golden_definition_is_that_definition() -> None:
    function = function_of(parse_api_name("Aten.npu_swiglu_backward.0.forward"), REFERENCES)
    module = "pytest_msprobe.extensions.npu_operators.layers.activation"
    assert function.imports == f"from {module} import npu_swiglu_backward"
    assert function.spelling == "npu_swiglu_backward"


@pytest.mark.parametrize(
    "api",
    [
        "Torch.load",
        "Functional.softmax(x) or __import__('os').system('true')",
        "Functional.torch.os.system",
        "NPU.x(): import os #",
        "NPU.a.b",
        "NPU.import",
        "NPU.\uff4epu",
        "Os.system",
        'Functional."""',
        "Functional.{0.__class__}",
        "Tensor.T; import os",
    ],
)
def test_a_name_that_is_no_operations_is_never_written(api: str) -> None:
    with pytest.raises(Skip):
        function_of(parse_api_name(f"{api}.0.forward"), REFERENCES)
