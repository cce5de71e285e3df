"""Options of ``--msprobe-overflow``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.run import option_fields
from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.option_fields import as_path, one_of, option, setting, shared
from pytest_msprobe.run.shared_options import HTML, JSON

if TYPE_CHECKING:
    from msprobe_hooks.extensions.overflow.anomaly import IgnoreRules, Level

_DEFAULT_LEVEL: Level = "critical"
#: As msprobe_hooks.extensions.overflow.anomaly has them, which not every start of pytest should load.
LEVELS: tuple[Level, ...] = ("critical", "high", "medium")
_IGNORE = "msprobe_overflow_ignore"


@dataclass(frozen=True, slots=True)
class OverflowOptions:
    """Search for overflow. ``level`` and higher ones fail; ``ignore`` is the user's own file of rules."""

    rules: IgnoreRules
    level: Level = setting(
        "msprobe_overflow_level",
        f"minimum severity that fails: {', '.join(LEVELS)}; lower ones warn (default: {_DEFAULT_LEVEL})",
        read=one_of(*LEVELS),
        default=_DEFAULT_LEVEL,
    )
    ignore: Path | None = setting(
        _IGNORE, "YAML file with rules for harmless inf and nan, in addition to the built-in rules", read=as_path
    )
    replay: bool = option(
        "--msprobe-overflow-replay",
        "replay the forward calls that overflow on CPU and device, and fail those that differ",
    )
    json: Path | None = shared(JSON, read=as_path, rerun=False)

    def fails(self, level: Level) -> bool:
        """Return whether a level makes a record fail."""
        return LEVELS.index(level) <= LEVELS.index(self.level)

    def settings(self) -> dict[str, str]:
        """Return what a journal must agree with."""
        from msprobe_hooks.regular_files import read_regular

        ignored = "built in" if self.ignore is None else read_regular(self.ignore).decode()
        return {"overflow_level": self.level, "overflow_ignore": ignored, "overflow_replay": str(self.replay)}


overflow_key = pytest.StashKey[OverflowOptions]()


def read_options(config: pytest.Config) -> OverflowOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    from pytest_msprobe.errors import OptionError, RulesError
    from pytest_msprobe.extensions.overflow.ignore_rules import load_rules

    try:
        rules = load_rules(option_fields.read_field(config, OverflowOptions, "ignore"))
    except RulesError as error:
        raise OptionError(f"{_IGNORE}: {error}") from None
    return option_fields.read_fields(config, OverflowOptions, rules=rules)


OVERFLOW = DeclaredMode(
    name="overflow",
    flag="--msprobe-overflow",
    flag_help="find the origin of inf and nan in this dump.json, or in a folder of them, such as a step",
    home="pytest_msprobe.extensions.overflow.mode:OverflowMode",
    shared_options=(HTML, JSON),
    options=(OverflowOptions,),
)
