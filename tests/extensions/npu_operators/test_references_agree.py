"""Golden definitions of torch_npu's operators against independent ones, by all example calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from torch import Generator

from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from tests.support.cann.agreement import assert_agrees
from tests.support.cann.example_call import Call
from tests.support.cann.examples import all_examples
from tests.support.cann.operators import independent, independent_definition
from tests.support.npu.torch_npu_operators import read_extract

# What is drawn agrees in its law alone.
EXAMPLES = {name: (operator, make) for operator, name, make in all_examples() if op_info(operator).random is None}


@pytest.mark.parametrize(("operator", "make"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_golden_definition_agrees_with_an_independent_one(operator: str, make: Callable[[Generator], Call]) -> None:
    assert_agrees(independent_definition(operator), make(Generator().manual_seed(0)))


def test_each_independent_definition_has_an_example_or_is_that_of_a_part_or_a_gradient() -> None:
    tried = {operator for operator, _, _ in all_examples()}
    others = {name for name in independent() if not name.endswith(("_backward", "_grad"))}
    assert others - tried == {"_npu_ciou", "npu_dropout_gen_mask"}


@pytest.mark.parametrize("operator", sorted(independent().keys() & read_extract().keys()))
def test_an_independent_definition_repeats_no_signature_of_the_schemas(operator: str) -> None:
    assert inspect.signature(independent_definition(operator)).parameters.keys() <= {"args", "kwargs"}


def test_a_card_computes_by_the_golden_definition_what_has_no_numbers_of_its_own() -> None:
    recorded = {name.removeprefix("NPU.") for name in ReferenceRegistry().names() if name.startswith("NPU.npu_")}
    assert recorded - independent().keys() == {
        "npu_alloc_float_status", "npu_attention_update", "npu_dtype_cast", "npu_dtype_cast_", "npu_format_cast",
        "npu_format_cast_",
    }  # fmt: skip
