"""Spelling of a call, read from the caller's bytecode: ``a + b`` or ``b + a``, a function or an operator.

PyTorch reports ``x + y`` and ``x.add(y)`` as the same method, and functions of ``torch.nn.functional`` report every
default they filled in. The instruction that made the call still knows the operator, and which arguments were given
by position and which by name. Each instruction is decoded once.

``number + tensor`` is reported with the tensor first, while msprobe names it ``__radd__``. The two operands are found
in the caller's source, at the place that the executing instruction was compiled from, and looked up without running
anything. Where that is not possible (no source, Python 3.10, operands that only a call could show) the plain name is
kept.
"""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from numbers import Number
from types import CodeType, FrameType, FunctionType
from typing import Any

from torch import Tensor, nn

_OLD_OPERATORS = {
    "ADD": "+",
    "SUBTRACT": "-",
    "MULTIPLY": "*",
    "TRUE_DIVIDE": "/",
    "FLOOR_DIVIDE": "//",
    "MODULO": "%",
    "POWER": "**",
    "MATRIX_MULTIPLY": "@",
    "LSHIFT": "<<",
    "RSHIFT": ">>",
    "AND": "&",
    "OR": "|",
    "XOR": "^",
}

_sites: dict[tuple[int, int], tuple[CodeType, CallSite]] = {}

_WRAPPERS = frozenset({"fn", "wrapped", "wrapper", "inner"})

_defaults: dict[int, tuple[CodeType, tuple[str, ...], dict[str, Any]]] = {}

_operands: dict[tuple[int, int], tuple[CodeType, ast.BinOp | None]] = {}


@dataclass(frozen=True, slots=True)
class CallSite:
    """``operator`` is ``+``, ``+=``, ``>`` ... or empty; the counts are known where a plain call was written."""

    operator: str = ""
    positional: int | None = None
    keywords: tuple[str, ...] = ()


def call_site(frame: FrameType) -> CallSite:
    """Return what the instruction that a frame is executing says about the call it makes."""
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    entry = _sites.get(key)
    if entry is None:
        # The code is kept so that its id is not given to another one.
        entry = _sites[key] = (code, _decode(code, frame.f_lasti))
    return entry[1]


def _decode(code: CodeType, offset: int) -> CallSite:
    before = [step for step in dis.get_instructions(code) if step.offset <= offset]
    step = before[-1]
    if step.opname == "BINARY_OP" or step.opname == "COMPARE_OP":
        return CallSite(operator=_comparison(step.argrepr))
    family, _, operation = step.opname.partition("_")
    if family in ("BINARY", "INPLACE") and operation in _OLD_OPERATORS:
        return CallSite(operator=_OLD_OPERATORS[operation] + ("=" if family == "INPLACE" else ""))
    count = step.arg or 0
    if step.opname == "CALL":
        # Python 3.11 puts PRECALL between the names and the call, 3.12 nothing, 3.13 has CALL_KW instead.
        past = [one for one in before[-3:-1] if one.opname != "PRECALL"][-1:]
        keywords = _constant(code, past[0]) if past and past[0].opname == "KW_NAMES" else ()
        return CallSite(positional=count - len(keywords), keywords=keywords)
    if step.opname in ("CALL_KW", "CALL_FUNCTION_KW"):
        keywords = _constant(code, before[-2])
        return CallSite(positional=count - len(keywords), keywords=keywords)
    if step.opname in ("CALL_FUNCTION", "CALL_METHOD"):
        return CallSite(positional=count)
    return CallSite()


def _comparison(text: str) -> str:
    # Python 3.13 writes "bool(>)" where the result goes straight into a branch.
    return text.removeprefix("bool(").removesuffix(")")


def _constant(code: CodeType, step: dis.Instruction) -> tuple[str, ...]:
    value = code.co_consts[step.arg] if step.arg is not None and step.arg < len(code.co_consts) else ()
    return value if isinstance(value, tuple) else ()


def as_written(
    func: Callable[..., Any], frame: FrameType, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Restore the form in which a Python function's caller wrote its arguments.

    ``frame`` is that of ``handle_torch_function``; its caller is the function's body. Where the caller unpacked
    containers (``f(*args)``) the arguments stay as reported.
    """
    body = frame.f_back
    caller = body.f_back if body is not None else None
    if body is None or caller is None:
        return args, kwargs
    if caller.f_code.co_name in _WRAPPERS and "torch" in caller.f_code.co_filename and caller.f_back is not None:
        caller = caller.f_back
    site = call_site(caller)
    if site.positional is None or body.f_code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        return args, kwargs
    names, defaults = _parameters(func, body)
    bound = dict(zip(names, args, strict=False)) | kwargs
    # The count leaves out the object of a method call, which bytecode does not distinguish from a module's function.
    for count in (site.positional, site.positional + 1):
        written = names[:count]
        spelled = {*written, *site.keywords}
        if bound.keys() >= spelled and all(name in spelled or _is(bound[name], defaults, name) for name in bound):
            return tuple(bound[name] for name in written), {name: bound[name] for name in site.keywords}
    return args, kwargs


def _is(value: Any, defaults: dict[str, Any], name: str) -> bool:
    if name not in defaults:
        return False
    default = defaults[name]
    return value is default or (isinstance(default, (int, float, str)) and bool(value == default))


def _parameters(func: Callable[..., Any], body: FrameType) -> tuple[tuple[str, ...], dict[str, Any]]:
    code = body.f_code
    entry = _defaults.get(id(code))
    if entry is None:
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        defaults: dict[str, Any] = {}
        for function in (inspect.unwrap(func), body.f_globals.get(code.co_name)):
            if isinstance(function, FunctionType) and function.__code__ is code:
                ends = function.__defaults__ or ()
                first = code.co_argcount - len(ends)
                defaults = dict(zip(names[first : code.co_argcount], ends, strict=True))
                defaults |= function.__kwdefaults__ or {}
        entry = _defaults[id(code)] = (code, names, defaults)
    return entry[1], entry[2]


def is_reflected(frame: FrameType) -> bool:
    """Return whether the operator that a frame is executing, on a tensor and a number, has the number on its left."""
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    entry = _operands.get(key)
    if entry is None:
        # The code is kept so that its id is not given to another one.
        entry = _operands[key] = (code, _operation(code, frame.f_lasti))
    operation = entry[1]
    if operation is None:
        return False
    left = _is_tensor(operation.left, frame)
    return not left if left is not None else _is_tensor(operation.right, frame) is True


def _operation(code: CodeType, offset: int) -> ast.BinOp | None:
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    first, last, start, end = next(islice(positions(), offset // 2, None))
    if None in (first, last, start, end):
        return None
    lines = [linecache.getline(code.co_filename, number).encode() for number in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        expression = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return None
    return expression if isinstance(expression, ast.BinOp) else None


def _is_tensor(node: ast.expr, frame: FrameType) -> bool | None:
    """Return None where it is not known without running code."""
    if isinstance(node, ast.BinOp):
        left, right = _is_tensor(node.left, frame), _is_tensor(node.right, frame)
        return True if left or right else left if left == right else None
    if isinstance(node, ast.UnaryOp):
        return _is_tensor(node.operand, frame)
    if isinstance(node, ast.Call):
        return False if getattr(_value(node.func, frame), "__module__", None) == "math" else None
    value = _value(node, frame)
    if isinstance(value, Tensor):
        return True
    return False if isinstance(value, Number) else None


def _value(node: ast.expr, frame: FrameType) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return frame.f_locals.get(node.id, frame.f_globals.get(node.id))
    if isinstance(node, ast.Attribute):
        return _member(_value(node.value, frame), node.attr)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        container = _value(node.value, frame)
        return container.get(node.slice.value) if type(container) is dict else None
    return None


def _member(owner: Any, name: str) -> Any:
    # Only what lies in an object's dictionary: anything else might run a property.
    try:
        members = vars(owner)
    except TypeError:
        return None
    if isinstance(owner, nn.Module):
        members = members | owner._parameters | owner._buffers
    return members.get(name)
