"""Options as data: what pytest's parser needs of each and of the help's groups, without the modules that declare them.

Options are declared as fields (`run.option_fields`), and modes with their flags. What the parser needs of them is also
in files called ``options.json``, one of the core and one of each extension that has options: a start of pytest reads
these alone. A test compares them, and ``python tests/run/test_option_data.py`` writes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

WHAT, HOW, DEVICES, RESULTS, JOURNAL = "check", "how", "devices", "results", "journal"
COMPARE, RECORD = "compare", "record"

# In the order of the help. A mode without a title here has one of its own, after these.
_TITLES = {
    WHAT: "what to check",
    HOW: "how to check",
    DEVICES: "devices and workers",
    RESULTS: "results and reports",
    JOURNAL: "journal and resume",
    COMPARE: "compare",
    "overflow": "overflow",
    "monitor": "monitor",
    "communication": "communication",
    "environment": "environment",
    "checkpoint": "checkpoint",
    RECORD: "record",
}


def add_groups(parser: pytest.Parser) -> None:
    """Add the groups, so that the help has them in order."""
    for name in _TITLES:
        option_group(parser, name)


def option_group(parser: pytest.Parser, name: str) -> pytest.OptionGroup:
    """Return the group of a job, or that of a mode by the mode's name."""
    return parser.getgroup(f"msprobe-{name}", f"msprobe: {_TITLES.get(name, name)}")


FILE = "options.json"
PACKAGE = Path(__file__).parents[1]

#: The ``name`` and ``help`` of an option or setting; ``group``, ``metavar``, ``kind`` ... where it has them.
Row: TypeAlias = Mapping[str, Any]


def add_written(parser: pytest.Parser, is_off: Callable[[str], bool]) -> None:
    """Add the options of the core, and of each extension that is there and not turned off."""
    for file in _files():
        if not is_off(file.parent.name):
            add_rows(parser, json.loads(file.read_bytes()))


def written_names() -> list[str]:
    """Return the names of all options and settings of the core and of each extension that is there."""
    return [row["name"] for file in _files() for row in json.loads(file.read_bytes())]


def _files() -> list[Path]:
    return [PACKAGE / FILE, *sorted(PACKAGE.glob(f"extensions/*/{FILE}"))]


def add_hints(parser: pytest.Parser, args: Sequence[str | os.PathLike[str]]) -> None:
    """Add to pytest's error about the command line which option was probably meant by each that is spelled like ours.

    pytest writes ``extra_info`` below such an error. Raises pytest.UsageError, as pytest does, for missing values.
    """
    if not any("probe" in os.fspath(arg) for arg in args):
        return
    unknown = parser.parse_known_and_unknown_args(args)[1]
    words = [word for arg in unknown if "probe" in (word := arg.partition("=")[0]) and word.startswith("--")]
    for word in words:
        from msprobe_hooks.messages import closest

        nearest = closest(word, written_names())
        hint = "of an extension that is turned off" if nearest == word else f"did you mean {nearest}?"
        parser.extra_info |= {word: hint} if nearest else {}


def add_rows(parser: pytest.Parser, rows: Iterable[Row], default: pytest.OptionGroup | None = None) -> None:
    """Add options to the groups that they name, or to a default one; and settings."""
    for row in rows:
        name, meaning, metavar = row["name"], row["help"], row.get("metavar")
        if not name.startswith("--"):
            parser.addini(name, meaning, type=_ini_type(row.get("kind", "string")), default=row.get("default"))
            continue
        group = option_group(parser, row["group"]) if "group" in row else default
        assert group is not None
        if metavar is None:
            group.addoption(name, action="store_true", help=meaning)
        elif row.get("repeat"):
            group.addoption(name, metavar=metavar, action="append", default=[], help=meaning)
        else:
            group.addoption(name, metavar=metavar, help=meaning)


def _ini_type(kind: str) -> Any:
    """Return the type of a key: without that of a number, pytest 9 reads none of TOML; before 8.4 it has none."""
    return None if kind in ("int", "float") and pytest.version_tuple < (8, 4) else kind
