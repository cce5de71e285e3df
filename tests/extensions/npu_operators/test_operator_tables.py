"""Declarations of the golden definitions, and the tables that are made of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.dump.effects import Effects, operation_effects
from msprobe_hooks.extensions.npu_operators.operators import RECORDED
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.operators import Operator, declared
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from tests.support.npu import operator_tables

OPERATORS = operator_tables.operators()


@pytest.mark.parametrize(
    ("file", "table"),
    [(operator_tables.MODULES, operator_tables.module_table), (operator_tables.HOOKS, operator_tables.hook_table)],
)
def test_a_table_is_what_the_declarations_say(file: Path, table: Callable[[], str]) -> None:
    assert file.read_text(encoding="utf-8") == table(), "write it anew: python -m tests.support.npu.operators_page"


def test_every_registered_definition_is_declared() -> None:
    assert {each.name for each in OPERATORS} == set(ReferenceRegistry().names())


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda each: each.name)
def test_the_declared_definition_is_the_registered_one(operator: Operator) -> None:
    assert ReferenceRegistry().get(operator.name) is operator.definition


@pytest.mark.parametrize("api", ["npu_mla_prolog_v3", "atb._npu_paged_attention_v2", "npu_scatter_nd_update.default"])
def test_what_is_declared_is_known_of_the_operation(api: str) -> None:
    assert op_info(api) != OpInfo()


@pytest.mark.parametrize("name", ["npu_grouped_matmul", "npu_sim_exponential_", "npu_moe_gating_top_k"])
def test_the_hook_library_knows_the_declared_effects(name: str) -> None:
    known = declared(name)
    assert known is not None
    assert operation_effects(name) == known.effects != Effects()


def test_operators_that_recordings_need_not_list_are_not_listed() -> None:
    assert "npu_rms_norm" in RECORDED
    assert "_lstm_npu" not in RECORDED


def test_a_name_is_known_without_torch() -> None:
    program: Any = (
        "import sys; from msprobe_hooks.dump.effects import effects_of; "
        "assert effects_of('NPU.npu_fusion_attention').defined == 3; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
