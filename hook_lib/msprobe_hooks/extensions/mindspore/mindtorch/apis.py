"""Locations of MindTorch's functions, and the names of their calls: torch's."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from mindspore import Tensor

from msprobe_hooks.torch import api_lists

# A program imports it in place of torch, or by a name of its own.
_NAMES = ("torch", "mindtorch.torch", "msadapter.torch", "msadapter.pytorch")
_PLACES = (
    ("Torch", "", api_lists.TORCH),
    ("Functional", "nn.functional", api_lists.FUNCTIONAL),
    ("Tensor", "Tensor", api_lists.TENSOR),
    ("Distributed", "distributed", api_lists.DISTRIBUTED),
)


def mindtorch() -> ModuleType | None:
    """Return the imported torch if its tensors are MindSpore's, as msprobe recognizes it; else None."""
    loaded = (sys.modules.get(name) for name in _NAMES)
    return next((module for module in loaded if module is not None and makes_mindspore_tensors(module)), None)


def makes_mindspore_tensors(torch: ModuleType) -> bool:
    """Return whether a module with torch's names is MindTorch's."""
    make = getattr(torch, "tensor", None)
    return make is not None and isinstance(make(0.0), Tensor)


def functions(torch: ModuleType) -> Iterator[tuple[Any, str, str]]:
    """Yield the owner, the attribute and the recorded name of every function of MindTorch that is recorded."""
    for type_, place, names in _PLACES:
        for name in sorted(names):
            path, _, attribute = name.rpartition(".")
            owner = _owner(torch, f"{place}.{path}".strip("."))
            function = getattr(owner, attribute, None)
            if callable(function) and not isinstance(function, type):
                yield owner, attribute, f"{type_}.{name}"


def _owner(torch: ModuleType, path: str) -> Any:
    try:
        return operator.attrgetter(path)(torch) if path else torch
    except AttributeError:
        return None
