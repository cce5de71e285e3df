"""What an operator leaves open of its results: how a value between two is rounded, and unrequested values."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.ops.quantized_results import Arguments, accept_quantized, are_neighbours


def accept_implementation_defined(operation: str, arguments: Arguments, target: Any, golden: Any) -> Any:
    """Return the target's output with golden's in place of what the operation leaves open.

    Both are CPU outputs, a single one in a list. Golden has None for a result that was not asked for. The arguments
    are those of the call, by position and by name.
    """
    traits = op_info(operation)
    if not (traits.quantizes or traits.quantized or traits.optional_outputs) or len(target) != len(golden):
        return target
    found = [
        _accepted(each, right, traits.quantizes, optional=traits.optional_outputs)
        for each, right in zip(target, golden, strict=True)
    ]
    if traits.quantized is not None:
        accept_quantized(traits.quantized, arguments, found, list(golden))
    return type(target)(found)


def _accepted(found: Any, right: Any, dtypes: frozenset[torch.dtype], *, optional: bool) -> Any:
    if optional and right is None:
        return None
    if not (isinstance(found, torch.Tensor) and isinstance(right, torch.Tensor)):
        return found
    if found.shape != right.shape or found.dtype != right.dtype or found.dtype not in dtypes:
        return found
    return right if are_neighbours(found.long(), right.long()) else found
