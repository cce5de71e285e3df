"""Python source as it is written here: safe literals, laid out as ``ruff format`` would, and a record's function.

Nothing of a dump becomes code: strings are escaped down to printable ASCII, numbers are spelled out.
"""

from __future__ import annotations

import keyword
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from types import ModuleType
from typing import Any, TypeAlias

import torch

from msprobe_hooks.dump.names import ApiName
from pytest_msprobe.engine.replay.ops.lookup import HOMES, npu_operator, resolve
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.results.outcomes import Skip, SkipReason

WIDTH = 120
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class Group:
    """Items between brackets, each after its own prefix: ``dim=`` or ``"dim": ``."""

    open: str
    items: tuple[tuple[str, Code], ...]
    close: str


Code: TypeAlias = str | Group


def call(name: str, *args: Code, **kwargs: Code) -> Group:
    """Return a call."""
    items = [("", argument) for argument in args] + [(f"{key}=", argument) for key, argument in kwargs.items()]
    return Group(f"{name}(", tuple(items), ")")


def list_of(items: list[Code]) -> Group:
    """Return a list."""
    return Group("[", tuple(("", item) for item in items), "]")


def tuple_of(items: list[Code]) -> Group:
    """Return a tuple."""
    return Group("(", tuple(("", item) for item in items), ")")


def dict_of(items: dict[str, Code]) -> Group:
    """Return a dict with strings as its keys."""
    return Group("{", tuple((f"{string(key)}: ", item) for key, item in items.items()), "}")


def literal(value: Any) -> Code:
    """Return the spelling of what JSON can hold. ``inf`` and ``nan`` are names that a module imports from math.

    Raises TypeError for anything else.
    """
    if value is None or isinstance(value, (bool, int)):
        return repr(value)
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return string(value)
    if isinstance(value, (list, tuple)):
        return (list_of if isinstance(value, list) else tuple_of)([literal(item) for item in value])
    if isinstance(value, dict):
        return dict_of({key: literal(item) for key, item in value.items()})
    raise TypeError(f"{type(value).__name__} has no literal")


def _float(value: float) -> str:
    return "nan" if math.isnan(value) else repr(value).replace("e+", "e")


def string(text: str) -> str:
    """Return a string literal of printable ASCII, in the quotes that need fewer escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return f"{quote}{escaped(text).replace(quote, chr(92) + quote)}{quote}"


def docstring(text: str) -> str:
    """Return a docstring; its lines stay lines, and nothing in them ends it or escapes."""
    return '"""' + "\n".join(escaped(line) for line in text.split("\n")).replace('"""', r"\"\"\"") + '"""'


def escaped(text: str) -> str:
    """Return a text as printable ASCII on one line, with the escapes of a string literal but for quotes."""
    return text.encode("unicode_escape").decode("ascii")


def lay_out(code: Code, lead: str = "", indent: int = 0, tail: str = "") -> Iterator[str]:
    """Yield the lines of an expression after ``lead``: one line where it fits, else one item per line."""
    line = f"{_INDENT * indent}{lead}{flat(code)}{tail}"
    if isinstance(code, str) or not code.items or len(line) <= WIDTH:
        yield line
        return
    yield f"{_INDENT * indent}{lead}{code.open}"
    for prefix, item in code.items:
        yield from lay_out(item, prefix, indent + 1, ",")
    yield f"{_INDENT * indent}{code.close}{tail}"


def flat(code: Code) -> str:
    """Return an expression on one line."""
    if isinstance(code, str):
        return code
    inner = ", ".join(f"{prefix}{flat(item)}" for prefix, item in code.items)
    comma = "," if code.open == "(" and len(code.items) == 1 else ""
    return f"{code.open}{inner}{comma}{code.close}"


def atoms(code: Code) -> Iterator[str]:
    """Yield everything in an expression that is no group."""
    if isinstance(code, str):
        yield code
    else:
        for _, item in code.items:
            yield from atoms(item)


def depth(code: Code) -> int:
    """Return how many brackets are open at the innermost place."""
    return 0 if isinstance(code, str) else 1 + max((depth(item) for _, item in code.items), default=0)


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
