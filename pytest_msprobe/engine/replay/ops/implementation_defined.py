"""What an operator leaves open of its results: how a value between two is rounded, and unrequested values."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.replay.ops.op_info import op_info

# docs/standards-reference.md, "Quantized results"
_NEIGHBOURS = 1 / 8


def accept_implementation_defined(operation: str, target: dict[str, Any], golden: dict[str, Any]) -> None:
    """Put golden's values into the target's results, in place, where the operation leaves them open.

    Both are trees of CPU tensors: the ``output``, a single one in a list, and the ``changed`` arguments by path. Golden
    has None for a result that was not asked for.
    """
    traits = op_info(operation)
    if not (traits.quantizes or traits.optional_outputs):
        return

    def accepted(found: Any, right: Any) -> Any:
        if traits.optional_outputs and right is None:
            return None
        return right if _are_neighbours(found, right, traits.quantizes) else found

    output, right = target["output"], golden["output"]
    if len(output) == len(right):
        target["output"] = type(output)([accepted(*pair) for pair in zip(output, right, strict=True)])
    kept = golden.get("changed", {})
    for path, found in target.get("changed", {}).items():
        if path in kept:
            target["changed"][path] = accepted(found, kept[path])


def _are_neighbours(found: Any, right: Any, dtypes: frozenset[torch.dtype]) -> bool:
    if not (isinstance(found, torch.Tensor) and isinstance(right, torch.Tensor)):
        return False
    if found.shape != right.shape or found.dtype != right.dtype or found.dtype not in dtypes:
        return False
    apart = (found.long() - right.long()).abs()
    return bool((apart <= 1).all()) and int(apart.sum()) <= max(1, int(_NEIGHBOURS * apart.numel()))
