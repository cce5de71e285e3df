"""Definitions of torch_npu's operators that are independent of the golden ones: what the simulated card runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

_DEFINITION = re.compile(r"^def (_?npu_\w+|_lstm_npu\w*|fast_gelu)\(", re.MULTILINE)


@cache
def independent() -> dict[str, str]:
    """Return the module of each operator that has an independent definition.

    Raises ValueError for an operator that two modules define.
    """
    found: dict[str, str] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        for name in _DEFINITION.findall(path.read_text()):
            if found.setdefault(name, path.stem) != path.stem:
                raise ValueError(f"{name} has two independent definitions: in {found[name]} and {path.stem}")
    return {name: f"{__name__}.{stem}" for name, stem in found.items()}


def independent_definition(operator: str) -> Callable[..., Any]:
    """Return the independent definition of an operator."""
    definition: Callable[..., Any] = getattr(import_module(independent()[operator]), operator)
    return definition
