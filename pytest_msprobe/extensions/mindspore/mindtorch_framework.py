"""MindTorch behind the engine's seam: its function is the target, that of PyTorch with the same name is golden."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.framework import Functions
from pytest_msprobe.engine.replay.ops.lookup import resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.mindspore.framework import MindSporeFramework, as_recorded, works_in_place
from pytest_msprobe.extensions.mindspore.jit_functions import bridged
from pytest_msprobe.extensions.mindspore.runtime import load_mindtorch
from pytest_msprobe.extensions.mindspore.translation import MindSporeSkip, foreign_type, in_torch_terms
from pytest_msprobe.results.outcomes import Skip, SkipReason

# Where it keeps what a type of record names.
_HOMES = {"Torch": "", "Functional": "nn.functional.", "Tensor": "Tensor."}


class MindTorchFramework(MindSporeFramework):
    """MindTorch on the devices of MindSpore. Raises DeviceError where it cannot be imported."""

    name = "mindtorch"

    def __init__(self) -> None:
        try:
            self._torch = load_mindtorch()
        except Exception as error:
            raise DeviceError(f"MindTorch cannot be imported: {error}") from error

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call with torch's dtypes; its name is torch's."""
        return in_torch_terms(call, None)

    def functions(
        self, call: Call, references: ReferenceRegistry, device: Any, function: Callable[..., Any] | None
    ) -> Functions:
        """Return MindTorch's function, of what PyTorch counts among its operations on tensors, and PyTorch's."""
        name, foreign = call.name, foreign_type(call)
        if foreign:
            raise Skip(SkipReason.OTHER_FRAMEWORK, f"{foreign} in a dump of mindtorch")
        golden = resolve(name, references)
        target = function or self._named(name.type, name.api)
        if target is None:
            raise Skip(MindSporeSkip.MISSING_API, f"MindTorch's {name.qualified_api}")
        return Functions(bridged(target, in_place=works_in_place(name.api)), as_recorded(golden, call))

    def _named(self, type_: str, api: str) -> Callable[..., Any] | None:
        home = _HOMES.get(type_)
        if home is None:
            return None
        try:
            attribute = operator.attrgetter(f"{home}{api}")(self._torch)
        except AttributeError:
            return None
        return attribute if callable(attribute) else operator.attrgetter(api)
