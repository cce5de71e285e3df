"""Operators of torch_npu: the names under which they are recorded, and what they do to memory.

Without it, recordings hold no call of torch_npu's own API. It adds no option and writes no file.
Take it out by deleting this folder, pytest_msprobe/extensions/npu_operators and tests/extensions/npu_operators.

Importing its modules loads msgspec.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe_hooks.dump.effects import Effects


def recorded_apis() -> tuple[tuple[str, Any, frozenset[str]], ...]:
    """Return the type of record, the module that has the APIs, and their names."""
    import sys

    from msprobe_hooks.extensions.npu_operators.operators import RECORDED

    # A script that uses the backend has imported it; None has no attribute of these names.
    return (("NPU", sys.modules.get("torch_npu"), RECORDED),)


def operation_effects() -> tuple[tuple[str, Effects], ...]:
    """Return what operations do, in rows of names and effects."""
    from msprobe_hooks.extensions.npu_operators.operators import EFFECTS

    return EFFECTS
