"""Python spelling of MindSpore's functions and dtypes."""

from __future__ import annotations

import operator

import mindspore
import torch

from msprobe_hooks.dump.names import ApiName
from msprobe_hooks.dump.schema import ValueElement
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.extensions.generate.source_format import Code, SpelledFunction, attribute_at, is_dotted_name, string
from pytest_msprobe.extensions.mindspore.framework import function_named, functions_of, in_torch_terms
from pytest_msprobe.extensions.mindspore.jit_functions import mindspore_dtype
from pytest_msprobe.extensions.mindspore.primitives.calls import class_of
from pytest_msprobe.extensions.mindspore.translation import MindSporeSkip
from pytest_msprobe.results.outcomes import Skip, SkipReason

# Where it is not installed, pytest shows this line.
_IMPORT = "import mindspore  # pip install 'pytest-msprobe[mindspore]'"

_HOMES = {
    "Mint": "mint.",
    "MintFunctional": "mint.nn.functional.",
    "Tensor": "Tensor.",
    "Functional": "ops.",
}


class MindSporeLanguage:
    """MindSpore's."""

    framework = "mindspore"

    def in_torch_terms(self, call: Call) -> Call:
        """Return the call with torch's dtype names and, where a backward was recorded, the tensors that require one."""
        return in_torch_terms(call)

    def function(self, call: Call, references: ReferenceRegistry) -> SpelledFunction:
        """Return MindSpore's function, for a call that its framework judges; a compiled one is the program's."""
        if call.name.type == "Jit":
            raise Skip(MindSporeSkip.COMPILED, call.name.qualified_api)
        functions_of(call, references, None)
        return _written(call.name)

    def dtype(self, dtype: torch.dtype) -> str:
        """Return MindSpore's name of a dtype."""
        try:
            mindspore_dtype(dtype)
        except NotImplementedError as error:
            raise Skip(SkipReason.UNKNOWN_DTYPE, str(error)) from None
        return f"mindspore.{'bool_' if dtype is torch.bool else str(dtype).removeprefix('torch.')}"

    def constant(self, element: ValueElement) -> Code | None:
        """Return the spelling of a dtype."""
        try:
            return self.dtype(dtype_named(str(element.value))) if element.type == "torch.dtype" else None
        except Skip:
            return None


def _written(name: ApiName) -> SpelledFunction:
    function = function_named(name)
    if name.type == "Primitive":
        kind = class_of(name)
        if attribute_at(mindspore.ops, kind) is not function:
            raise Skip(MindSporeSkip.MISSING_API, f"mindspore.ops.{kind}")
        return SpelledFunction(f"mindspore.ops.{kind}", framework=_IMPORT)
    if isinstance(function, operator.attrgetter):
        return SpelledFunction(f"operator.attrgetter({string(name.api)})", imports="import operator", framework=_IMPORT)
    dotted = f"{_HOMES[name.type]}{name.api}"
    if is_dotted_name(dotted) and attribute_at(mindspore, dotted) == function:
        return SpelledFunction(f"mindspore.{dotted}", framework=_IMPORT)
    raise Skip(MindSporeSkip.MISSING_API, name.qualified_api)
