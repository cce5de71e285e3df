"""Order of operands: ``number + tensor`` or ``tensor + number``.

PyTorch reports both as the same call with the tensor first, while msprobe names the first one ``__radd__``. The two
operands are found in the caller's source, at the place that the executing instruction was compiled from, and looked up
without running anything. Where that is not possible (no source, Python 3.10, operands that only a call could show) the
plain name is kept.
"""

from __future__ import annotations

import ast
import linecache
from itertools import islice
from numbers import Number
from types import CodeType, FrameType
from typing import Any

from torch import Tensor, nn

_operands: dict[tuple[int, int], tuple[CodeType, ast.BinOp | None]] = {}


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
