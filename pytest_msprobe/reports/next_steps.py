"""Commands with which the reader of a page goes on from one of its records.

Words in angle brackets are places: the ``<dump>`` and the ``<record>`` that is open, the folder of its ``<saved>`` case,
``<call>``, the record if it is of an API's call, and ``<rerun>``, the command that runs it again. A page leaves out a
command for whose places it has no value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pytest_msprobe.installed_extensions import extensions

#: The title of a command, and its words.
NextStep: TypeAlias = tuple[str, Sequence[str]]

CHECK: NextStep = ("Check this call on a device", ("pytest", "--msprobe-dump=<dump>::<call>"))

_OF_CASES: tuple[NextStep, ...] = (
    ("Save it as a case", ("<rerun>", "--msprobe-save-failures=failures")),
    ("Judge the saved case again", ("pytest-msprobe", "replay", "<saved>")),
)


def next_steps() -> list[NextStep]:
    """Return the commands on a record, of cases first, then what extensions have as ``NEXT_STEPS``."""
    return [*_OF_CASES, *(step for one in extensions().values() for step in getattr(one, "NEXT_STEPS", ()))]
