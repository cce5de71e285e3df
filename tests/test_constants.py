"""Reasons of the numbers that verdicts depend on, where a reader looks for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDERS = (
    "standards/msprobe_standards",
    "pytest_msprobe/engine/replay/judging",
    "pytest_msprobe/modes/compare/judging",
    "pytest_msprobe/modes/compare/measure",
)
_COMMENT = re.compile(r"  # (?!fmt:|noqa|type:)")
# Names that say what a number is: units, and what formats of numbers define.
_DEFINED = re.compile(r"[KMGT]IB|KILO|MEGA|GIGA|UNIT_ROUNDOFF")


def test_a_number_that_decides_has_its_reason_next_to_it() -> None:
    files = [file for folder in FOLDERS for file in sorted((REPOSITORY / folder).rglob("*.py"))]
    assert [f"{file.name}: {name}" for file in files for name in unexplained(file.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("# A choice.\n_MOST = 4.0\n_LEAST: Final = {'float16': 2**-11}\n", []),
        ("_SAMPLE = 32  # of a cache line\nWIDTH = 7\n'In bytes.'\n", []),
        ("_FIRST = 1\n_ORDER = {'input': 2}\nMIB = 2**20\n", []),
        ("# A choice.\n_MOST = 4.0\n\n_A, _B = 0.5, -2.0\n_C = (1, 1e-3)  # noqa: X1\n", ["_A", "_B", "_C"]),
    ],
)
def test_a_comment_explains_the_numbers_below_it_up_to_an_empty_line(source: str, names: list[str]) -> None:
    assert list(unexplained(source)) == names


def unexplained(source: str) -> Iterator[str]:
    """Yield the constants of a module that are numbers of its own choice, and have no comment.

    That is one on their lines, a text behind them, or one above the block that they are in.
    """
    lines, body = source.splitlines(), ast.parse(source).body
    for node, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or not _decides(node.value):
            continue
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if is_text or _has_comment(lines, node.lineno, node.end_lineno or node.lineno):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
        yield from (name for name in names if name.isupper() and not _DEFINED.search(name))


def _has_comment(lines: list[str], first: int, last: int) -> bool:
    if any(_COMMENT.search(line) for line in lines[first - 1 : last]):
        return True
    above = first - 2
    while above >= 0 and lines[above].strip() and not lines[above].startswith("#"):
        above -= 1
    return above >= 0 and lines[above].startswith("#")


def _decides(value: ast.expr) -> bool:
    """Return whether an expression is a float or an integer above 1, or holds one; mappings to whole numbers do not."""
    match value:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() as number):
            return number > 1
        case ast.Constant(value=float()):
            return True
        case ast.UnaryOp(operand=operand):
            return _decides(operand)
        case ast.BinOp(left=left, right=right):
            return _decides(left) or _decides(right)
        case ast.Tuple(elts=elements):
            return any(map(_decides, elements))
        case ast.Dict(values=values):
            return any(isinstance(number, ast.BinOp) or _is_float(number) for number in values)
        case _:
            return False


def _is_float(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, float)
