"""Header of a run: one line of pytest's header, however many ranks there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.dump.recording_paths import home_of
from msprobe_hooks.messages import counted, listed
from pytest_msprobe.run.rerun_command import display_path

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump

_SHOWN = 4


def files_in_one_line(
    config: pytest.Config, paths: Sequence[Path], what: str, counts: Sequence[tuple[int, str]], kinds: str = ""
) -> str:
    """Return the only file, or how many of ``what`` there are and the first and last; then what they hold together."""
    names = [display_path(config, path) for path in paths]
    shown = names[0] if len(names) == 1 else f"{len(names)} {what}, {names[0]} to {names[-1]}"
    contents = ", ".join(
        f"{count} {noun}{'s' * (count != 1 and not noun.endswith('s'))}" for count, noun in counts if count
    )
    return f"msprobe: {shown}: {contents or f'0 {counts[0][1]}s'}{f' ({kinds})' if kinds else ''}"


def empty_line(paths: Collection[Path], left_out: str) -> str:
    """Return a line about dumps without records, which are ``left_out`` (not checked); empty where there are none."""
    if not paths:
        return ""
    which = listed((str(home_of(path)) for path in paths), _SHOWN)
    return f"{counted(len(paths), 'dump')} without records, {left_out}: {which}"


def kinds_of(dumps: Collection[Dump]) -> str:
    """Return how dumps were recorded, each way once."""
    return "; ".join(dict.fromkeys(f"{dump.framework}, {dump.level}, {dump.task}" for dump in dumps))
