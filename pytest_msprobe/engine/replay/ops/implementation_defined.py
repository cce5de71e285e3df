"""What an operator leaves open of its results: how a value between two is rounded, and unrequested values."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.quantized_results import (
    Arguments,
    accept_quantized,
    accept_quantized_argument,
    are_neighbours,
)
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.operator_table import FUSED_OPERATORS


def accept_implementation_defined(
    operation: str, arguments: Arguments, target: dict[str, Any], golden: dict[str, Any]
) -> None:
    """Put golden's values into the target's results, in place, where the operation leaves them open.

    Both are trees of CPU tensors: the ``output``, a single one in a list, and the ``changed`` arguments by path. Golden
    has None for a result that was not asked for. The arguments are those of the call, by position and by name.
    """
    traits = op_info(operation)
    is_optional = operation in FUSED_OPERATORS
    if not (traits.quantizes or traits.quantized or is_optional):
        return
    output, right = target["output"], golden["output"]
    if len(output) == len(right):
        pairs = zip(output, right, strict=True)
        found = [None if is_optional and each is None else _accepted(result, each, traits) for result, each in pairs]
        if traits.quantized is not None:
            accept_quantized(traits.quantized, arguments, found, list(right))
        target["output"] = type(output)(found)
    kept = golden.get("changed", {})
    for path, changed in target.get("changed", {}).items():
        if path in kept:
            found = _accepted(changed, kept[path], traits)
            if traits.quantized is not None:
                found = accept_quantized_argument(traits.quantized, arguments, found, kept[path])
            target["changed"][path] = found


def _accepted(found: Any, right: Any, traits: OpInfo) -> Any:
    if not (isinstance(found, torch.Tensor) and isinstance(right, torch.Tensor)):
        return found
    if found.shape != right.shape or found.dtype != right.dtype or found.dtype not in traits.quantizes:
        return found
    return right if are_neighbours(found.long(), right.long()) else found
