"""Commands with which the reader of a page goes on from one of its records.

A page fills in ``<dump>``, ``<record>``, ``<call>`` (the record of an API's call), ``<saved>`` (the folder of its case)
and ``<rerun>`` (the command that runs it again), and leaves out a command for which it lacks one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pytest_msprobe.installed_extensions import extensions

#: The title of a command, and its words.
NextStep: TypeAlias = tuple[str, Sequence[str]]

CHECK: NextStep = ("Check this call on a device", ("pytest", "--msprobe-dump=<dump>::<call>"))

_SAVE: NextStep = ("Save it as a case", ("<rerun>", "--msprobe-save-failures=failures"))
_REPLAY: NextStep = ("Judge the saved case again", ("pytest-msprobe", "replay", "<saved>"))


def next_steps() -> list[NextStep]:
    """Return the commands on a record, of cases first, then what extensions have as ``NEXT_STEPS``."""
    return [_SAVE, _REPLAY, *(step for one in extensions().values() for step in getattr(one, "NEXT_STEPS", ()))]
