"""The table of versions in ``docs/versions.md``, from the rows that ``make test-matrix`` wrote.

``python -m tests.support.environments.versions_table ROWS`` replaces the rows of the same versions, others stay.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs/versions.md"
_START = "<!-- Rows written by `make test-matrix`. -->\n"
_END = "<!-- End of these rows. -->\n"
VERSIONS = ("python", "torch", "mindspore", "numpy", "pytest", "pytest-xdist", "msgspec")
RUNS = ("check", "-n 2", "recording", "comparison", "tests")
HEAD = ("Python", "torch", "MindSpore", "NumPy", "pytest", "xdist", "msgspec", *RUNS, "when")


def main() -> None:
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
    PAGE.write_text(with_rows(PAGE.read_text(encoding="utf-8"), rows), encoding="utf-8")


def with_rows(page: str, rows: list[dict[str, str]]) -> str:
    """Return the page with these rows, sorted by framework and Python, in place of those of the same versions."""
    before, _, rest = page.partition(_START)
    table, found, after = rest.partition(_END)
    assert found, f"{PAGE} lacks the lines between which its rows are"
    known = {cells[: len(VERSIONS)]: cells for cells in map(_cells, table.splitlines()[2:])}
    for row in rows:
        cells = tuple(row.get(name, "") for name in (*VERSIONS, *RUNS, "date"))
        known[cells[: len(VERSIONS)]] = cells
    ordered = sorted(known.values(), key=lambda cells: (cells[2] != "", *map(_number, (cells[2], cells[1], cells[0]))))
    lines = [HEAD, ("---",) * len(HEAD), *ordered]
    return f"{before}{_START}{''.join(_line(cells) for cells in lines)}{_END}{after}"


def _cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |\n"


def _number(version: str) -> list[int]:
    return [int(part) for part in version.split("+")[0].split(".") if part.isdigit()]


if __name__ == "__main__":
    main()
