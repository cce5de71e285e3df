"""Python spelling of functions, dtypes and constants of a framework."""

from __future__ import annotations

from typing import Protocol

import torch

from msprobe_hooks.dump.schema import ValueElement
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.extensions.generate.function_source import SpelledFunction, function_of
from pytest_msprobe.extensions.generate.source_format import Code, call, literal


class Language(Protocol):
    """Language that modules for the calls of a framework are written in.

    All texts are made of names that the framework itself has, never of the record's. ``framework`` is the name that
    dumps give it.
    """

    framework: str

    def in_torch_terms(self, call: Call) -> Call:
        """Return a recorded call with torch's dtype names, in which each tensor says whether it requires a gradient."""

    def function(self, call: Call, references: ReferenceRegistry) -> SpelledFunction:
        """Return what to write for a call's function. Raises Skip, with the reason, where the call is not judged."""

    def dtype(self, dtype: torch.dtype) -> str:
        """Return the framework's spelling of a dtype. Raises Skip where it has none."""

    def constant(self, element: ValueElement) -> Code | None:
        """Return the spelling of a value that is of the framework's own type; None for any other."""


class TorchLanguage:
    """PyTorch's."""

    framework = PYTORCH

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call itself."""
        return call

    def function(self, call: Call, references: ReferenceRegistry) -> SpelledFunction:
        """Return the function that the record names."""
        return function_of(call.name, references)

    def dtype(self, dtype: torch.dtype) -> str:
        """Return what torch calls it, whatever the record did."""
        return str(dtype)

    def constant(self, element: ValueElement) -> Code | None:
        """Return the spelling of a size, dtype, memory format or layout."""
        value = element.value
        if element.type == "torch.Size" and isinstance(value, list) and all(type(size) is int for size in value):
            return call("torch.Size", literal(value))
        kind = _CONSTANTS.get(element.type)
        constant = kind and getattr(torch, str(value).removeprefix("torch."), None)
        return str(constant) if kind and isinstance(constant, kind) else None


_CONSTANTS: dict[str, type] = {
    "torch.dtype": torch.dtype,
    "torch.memory_format": torch.memory_format,
    "torch.layout": torch.layout,
}


def language_of(framework: str) -> Language:
    """Return how the calls of a framework are written. Raises DeviceError where it cannot be imported."""
    if framework == PYTORCH:
        return TorchLanguage()
    from pytest_msprobe.extensions.mindspore.runtime import start

    start()
    from pytest_msprobe.extensions.generate.mindspore_language import MindSporeLanguage

    return MindSporeLanguage()
