"""The tables of the hook library, which does not import the plugin, agree with the rows of torch's operations."""

from __future__ import annotations

import pytest

from msprobe_hooks.dump.derived_layouts.view_calls import ELEMENTWISE
from msprobe_hooks.dump.effects import UNDEFINED_RESULTS, operation_effects
from msprobe_hooks.dump.names import is_in_place
from msprobe_hooks.torch.api_lists import FUNCTIONAL, TORCH
from msprobe_hooks.torch.apis import WRITING
from pytest_msprobe.engine.replay.ops import cuts
from pytest_msprobe.engine.replay.ops.op_info import TABLE
from pytest_msprobe.engine.replay.random_apis import unverifiable

CUT = {name: row.blocks.rule for name, row in TABLE.items() if row.blocks is not None}
# Its first tensor is the condition, whose layout says nothing.
NOT_LIKE_ITS_FIRST = {"where"}


@pytest.mark.parametrize("operation", [name for name, row in TABLE.items() if row.in_place])
def test_what_writes_without_an_underscore_behind_its_name_does_so_in_recordings(operation: str) -> None:
    assert is_in_place(f"Tensor.{operation}")


@pytest.mark.parametrize(
    "operation", [name for name, row in TABLE.items() if row.random and not row.switch and name.endswith("_")]
)
def test_what_is_drawn_in_place_is_recorded_as_not_read(operation: str) -> None:
    assert {"0", "self", "input"} <= operation_effects(operation).unread


def test_the_results_that_cannot_be_judged_for_they_were_in_memory_are_recorded_as_undefined() -> None:
    assert {name for name, row in TABLE.items() if row.random is unverifiable.undefined} == UNDEFINED_RESULTS
    assert all(operation_effects(name).undefined for name in UNDEFINED_RESULTS)


@pytest.mark.parametrize("operation", [name for name, rule in CUT.items() if rule is cuts.alike])
def test_a_cast_or_a_copy_carries_what_its_argument_held(operation: str) -> None:
    assert operation_effects(operation).carries


@pytest.mark.parametrize(
    "operation", [name for name, rule in CUT.items() if rule is cuts.elementwise and not is_in_place(f"Tensor.{name}")]
)
def test_what_is_cut_element_by_element_has_the_layout_of_its_first_tensor(operation: str) -> None:
    assert (operation in ELEMENTWISE) == (operation not in NOT_LIKE_ITS_FIRST)


@pytest.mark.parametrize("operation", [name for name, row in TABLE.items() if row.running_statistics is not None])
def test_recorded_functions_with_running_statistics_are_recorded_as_writing_them(operation: str) -> None:
    recorded = {f"Functional.{operation}"} if operation in FUNCTIONAL else set()
    recorded |= {f"Torch.{operation}"} if operation in TORCH else set()
    assert recorded <= WRITING
