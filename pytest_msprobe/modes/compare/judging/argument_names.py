"""The names of positional arguments of torch's functions, as torch's own files write them; torch is not imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

# By the type in a record's name: where torch's wheels hold the signatures of such functions, the first that has one.
_FILES = {
    "Functional": ("nn/functional.py", "nn/functional.pyi", "_C/_nn.pyi", "_C/_VariableFunctions.pyi"),
    "Torch": ("functional.py", "_C/_VariableFunctions.pyi"),
    "Tensor": ("_C/__init__.pyi",),
}
_METHODS = re.compile(r"^class (?:_TensorBase|TensorBase)\b.*?(?=^class )", re.DOTALL | re.MULTILINE)


@cache
def argument_name(called: str, position: int) -> str:
    """Return the name of a positional argument of ``Type.api``, empty where torch's files do not agree on one."""
    type_, _, api = called.partition(".")
    for file in _FILES.get(type_, ()):
        signatures = [*_signatures(file, api)]
        if signatures:
            names = {names[position] for names in signatures if position < len(names)}
            return names.pop() if len(names) == 1 else ""
    return ""


def _signatures(file: str, api: str) -> Iterator[list[str]]:
    """Yield the names of the positional arguments of each overload of a function."""
    text = _text(file)
    for match in re.finditer(rf"^[ ]*def {re.escape(api)}\((.*?)\)(?: ->[^\n]*)?:", text, re.DOTALL | re.MULTILINE):
        try:
            (function,) = ast.parse(f"def f({match[1]}): ...").body
        except SyntaxError:
            continue
        if isinstance(function, ast.FunctionDef):
            yield [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]


@cache
def _text(file: str) -> str:
    """Return what a file of the installed torch holds, of the stubs of its core the methods of tensors alone."""
    try:
        spec = find_spec("torch")
        if spec is None or spec.origin is None:
            return ""
        text = (Path(spec.origin).parent / file).read_text(encoding="utf-8")
    except (OSError, ImportError, ValueError):
        return ""
    if file != "_C/__init__.pyi":
        return text
    methods = _METHODS.search(text)
    return methods[0] if methods else ""
