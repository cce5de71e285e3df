"""Export of a mapping's effect as a data mapping, to be read, corrected and given to another run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pytest_msprobe.modes.compare.matching.data_mapping import NOTHING

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_msprobe.modes.compare.rows import ComparedCall

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*")


def write_data_mapping(path: Path, calls: Iterable[ComparedCall]) -> None:
    """Write the golden value of each of the target's values that were compared, and N/A for those left out.

    Raises OSError where the file cannot be written.
    """
    with path.open("w", encoding="utf-8") as file:
        for call in calls:
            if call.target is None or call.golden is None:
                continue
            for row in call.rows:
                if row.target is not None:
                    golden = row.golden.name if row.golden is not None else NOTHING
                    file.write(f"{_quoted(row.target.name)}: {_quoted(golden)}\n")


def _quoted(name: str) -> str:
    # YAML reads what JSON writes; names are mostly plain enough to do without.
    return name if _PLAIN.fullmatch(name) else json.dumps(name)
