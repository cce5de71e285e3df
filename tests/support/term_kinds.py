"""Table of the terms that operations add up, for comparisons, which may not load torch: written from the rows."""

from __future__ import annotations

import textwrap
from pathlib import Path

from pytest_msprobe.engine.replay.ops.op_info import TABLE

FILE = Path(__file__).parents[2] / "pytest_msprobe/modes/compare/judging/term_kinds.py"
#: Field of a row -> the table of its kinds, and what it is.
_TABLES = {
    "terms": ("TERMS", "Kind of terms -> the operations whose results add them up."),
    "gradient_terms": ("GRADIENT_TERMS", "Kind of terms -> the operations whose gradients add them up."),
    "step": ("STEPS", "Kind of step -> the operations by which an optimizer makes it."),
}


def main() -> None:
    """Write the table."""
    FILE.write_text(table(), encoding="utf-8")


def table() -> str:
    """Return the text of the module."""
    lines = [
        '"""Kinds of terms that operations add up, by their rows; written by `python -m tests.support.term_kinds`."""',
        "",
        "from __future__ import annotations",
    ]
    for field, (name, meaning) in _TABLES.items():
        lines += ["", f"#: {meaning}", f"{name}: dict[str, tuple[str, ...]] = {{"]
        for kind, operations in sorted(operations_by_kind(field).items()):
            row = f"    '{kind}': {tuple(operations)},".replace("'", '"')
            lines += textwrap.wrap(row, 120, subsequent_indent=" " * 8)
        lines.append("}  # fmt: skip")
    return "\n".join([*lines, ""])


def operations_by_kind(field: str) -> dict[str, list[str]]:
    """Return the operations by what a field of their rows says, where it says something."""
    kinds: dict[str, list[str]] = {}
    for operation in sorted(TABLE):
        if kind := getattr(TABLE[operation], field):
            kinds.setdefault(kind, []).append(operation)
    return kinds


if __name__ == "__main__":
    main()
