"""What an operator leaves open of its results is taken as golden's."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.replay.ops.op_info import accept_implementation_defined


def accepted(operation: str, found: list[Any], golden: list[Any]) -> list[Any]:
    target = {"output": found}
    accept_implementation_defined(operation, ((), {}), target, {"output": golden})
    output: list[Any] = target["output"]
    return output


def test_a_result_that_golden_lacks_stays_where_the_operation_is_none_of_torch_npus() -> None:
    result, surplus = torch.ones(2), torch.ones(3)
    assert accepted("add", [result, surplus], [result, None]) == [result, surplus]
