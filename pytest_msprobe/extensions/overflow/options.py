"""Options of ``--msprobe-overflow``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from msprobe_hooks.dump.anomalies.anomaly import LEVELS, IgnoreRules, Level
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import OptionError, RulesError, no_effect, unknown_value
from pytest_msprobe.extensions.overflow.ignore_rules import load_rules

_DEFAULT_LEVEL: Level = "critical"


@dataclass(frozen=True, slots=True)
class OverflowOptions:
    """How overflow is looked for. ``level`` and higher ones fail; ``ignore`` is the user's own file of rules."""

    level: Level
    ignore: Path | None
    rules: IgnoreRules
    replay: bool
    json: Path | None

    def fails(self, level: Level) -> bool:
        """Return whether a level makes a record fail."""
        return LEVELS.index(level) <= LEVELS.index(self.level)

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        words = ["--msprobe-overflow-level", self.level] if self.level != _DEFAULT_LEVEL else []
        words += ["--msprobe-overflow-ignore", str(self.ignore)] if self.ignore is not None else []
        return words + (["--msprobe-overflow-replay"] if self.replay else [])

    def settings(self) -> dict[str, str]:
        """Return what a journal must agree with."""
        ignored = "built in" if self.ignore is None else read_regular(self.ignore).decode()
        return {"overflow_level": self.level, "overflow_ignore": ignored, "overflow_replay": str(self.replay)}


overflow_key = pytest.StashKey[OverflowOptions]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the plugin's group."""
    add = group.addoption
    add(
        "--msprobe-overflow-level",
        metavar="LEVEL",
        help=f"minimum severity that fails: {', '.join(LEVELS)}; lower ones warn (default: {_DEFAULT_LEVEL})",
    )
    add(
        "--msprobe-overflow-ignore",
        metavar="FILE",
        help="YAML file with rules for harmless inf and nan, in addition to the built-in rules",
    )
    add(
        "--msprobe-overflow-replay",
        action="store_true",
        help="replay the forward calls that overflow on CPU and device, and fail those that differ",
    )
    add(
        "--msprobe-overflow-json",
        metavar="DIR",
        help="write the first culprits to this folder, to msprobe's anomaly_analyze file",
    )


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where an option of ``--msprobe-overflow`` is passed without it."""
    for name in ("level", "ignore", "replay", "json"):
        if config.getoption(f"msprobe_overflow_{name}"):
            raise no_effect(f"--msprobe-overflow-{name}", "--msprobe-overflow PATH")


def read_options(config: pytest.Config) -> OverflowOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    level = config.getoption("msprobe_overflow_level") or _DEFAULT_LEVEL
    if level not in LEVELS:
        raise unknown_value("--msprobe-overflow-level", level, LEVELS)
    ignore = _path(config, config.getoption("msprobe_overflow_ignore"))
    json = _path(config, config.getoption("msprobe_overflow_json"))
    try:
        rules = load_rules(ignore)
    except RulesError as error:
        raise OptionError(f"--msprobe-overflow-ignore: {error}") from None
    return OverflowOptions(
        level=cast("Level", level),
        ignore=ignore,
        rules=rules,
        replay=bool(config.getoption("msprobe_overflow_replay")),
        json=json,
    )


def _path(config: pytest.Config, text: Any) -> Path | None:
    return Path(config.invocation_params.dir / text) if text else None
