"""The session of MindTorch: MindSpore's, with the functions and modules of torch, and the names of torch's calls."""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from mindspore import Tensor

from msprobe_hooks.extensions.mindspore.recorder import MindSporeRecorder
from msprobe_hooks.extensions.mindspore.session import MindSporeSession
from msprobe_hooks.recording.config import Settings
from msprobe_hooks.recording.session import Model
from msprobe_hooks.torch import api_lists

# A program imports it in place of torch, or by a name of its own.
_NAMES = ("torch", "mindtorch.torch", "msadapter.torch", "msadapter.pytorch")
_PLACES = (
    ("Torch", "", api_lists.TORCH),
    ("Functional", "nn.functional", api_lists.FUNCTIONAL),
    ("Tensor", "Tensor", api_lists.TENSOR),
    ("Distributed", "distributed", api_lists.DISTRIBUTED),
)


class MindTorchRecorder(MindSporeRecorder):
    """Records what runs under MindTorch."""

    framework = "mindtorch"


class MindTorchSession(MindSporeSession):
    """A recording of what a program calls of MindTorch; modules are recorded where they are MindSpore's cells."""

    module_type = "Module"

    def __init__(self, settings: Settings, torch: ModuleType, model: Model | None = None) -> None:
        self._torch = torch
        super().__init__(settings, model, MindTorchRecorder(settings))

    def functions(self) -> Iterator[tuple[Any, str, str]]:
        """Yield the functions whose calls are recorded."""
        return _functions(self._torch)

    def layers(self) -> Iterator[tuple[Any, str, str]]:
        """Yield nothing: what MindSpore calls a primitive has no name in torch."""
        return iter(())


def mindtorch() -> ModuleType | None:
    """Return the imported torch if its tensors are MindSpore's, as msprobe recognizes it; else None."""
    loaded = (sys.modules.get(name) for name in _NAMES)
    return next((module for module in loaded if module is not None and makes_mindspore_tensors(module)), None)


def makes_mindspore_tensors(torch: ModuleType) -> bool:
    """Return whether a module with torch's names is MindTorch's."""
    make = getattr(torch, "tensor", None)
    return make is not None and isinstance(make(0.0), Tensor)


def _functions(torch: ModuleType) -> Iterator[tuple[Any, str, str]]:
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
