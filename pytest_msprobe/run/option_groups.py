"""The groups of options in ``pytest --help``, by job: several modules add to one of them."""

from __future__ import annotations

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
