"""Results for which the definition of an NPU operator has none."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.replay.ops.op_info import accept_implementation_defined


def test_nothing_is_promised_of_a_result_for_which_the_definition_of_a_fused_operator_has_none() -> None:
    result = torch.ones(2)
    target: dict[str, list[Any]] = {"output": [result, torch.ones(3)]}
    accept_implementation_defined("npu_mhc_sinkhorn", ((), {}), target, {"output": [result, None]})
    assert target["output"] == [result, None]
