"""Python source of the function that a record names."""

from __future__ import annotations

import keyword
import operator
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any

import torch

from msprobe_hooks.dump.names import ApiName
from pytest_msprobe.engine.replay.ops.lookup import HOMES, npu_operator, resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.extensions.generate.source_format import string
from pytest_msprobe.results.skip_reasons import Skip, SkipReason


@dataclass(frozen=True, slots=True)
class SpelledFunction:
    """A function in a module: ``spelling`` is the expression, ``imports`` and ``definition`` what it needs before.

    ``framework`` imports what the function works on; ``golden`` names its golden definition where that is another.
    """

    spelling: str
    imports: str = ""
    definition: str = ""
    golden: str = ""
    framework: str = "import torch"


def function_of(name: ApiName, references: ReferenceRegistry) -> SpelledFunction:
    """Return what to write for the function that a record names.

    The text is made of names that torch itself has, never of the record's. Raises Skip, with the reason, where there
    is nothing to run.
    """
    if name.type == "NPU":
        return _npu_function(name, references)
    function = resolve(name, references)
    if references.get(name.qualified_api) is not None:
        return SpelledFunction(function.__name__, imports=f"from {function.__module__} import {function.__name__}")
    if isinstance(function, operator.attrgetter):
        return SpelledFunction(f"operator.attrgetter({string(name.api)})", imports="import operator")
    for home in HOMES[name.type]:
        dotted = f"{home}{name.api}"
        if is_dotted_name(dotted) and attribute_at(torch, dotted) == function:
            return SpelledFunction(f"torch.{dotted}")
    raise Skip(SkipReason.UNKNOWN_API, name.qualified_api)


def _npu_function(name: ApiName, references: ReferenceRegistry) -> SpelledFunction:
    if not is_dotted_name(name.api) or "." in name.api:
        raise Skip(SkipReason.UNKNOWN_API, name.qualified_api)
    golden = references.get(name.qualified_api)
    return SpelledFunction(
        name.api,
        definition=(
            f"def {name.api}(*args, **kwargs):\n"
            '    """Call the operation of torch_npu; other devices run its golden definition in its place."""\n'
            f"    return torch.ops.{npu_operator(name.api)}(*args, **kwargs)"
        ),
        golden="" if golden is None else f"{golden.__module__}.{golden.__name__}",
    )


def is_dotted_name(dotted: str) -> bool:
    """Return whether a text is names with dots between them, and nothing else."""
    return all(part.isascii() and part.isidentifier() and not keyword.iskeyword(part) for part in dotted.split("."))


def attribute_at(module: ModuleType, dotted: str) -> Any:
    """Return what a dotted name refers to in a module; None where there is nothing."""
    try:
        return reduce(getattr, dotted.split("."), module)
    except AttributeError:
        return None
