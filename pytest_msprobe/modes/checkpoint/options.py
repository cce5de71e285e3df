"""Options of ``--msprobe-checkpoint``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.shared_options import GOLDEN, golden_path

_LIMIT, _JSON = "--msprobe-checkpoint-limit", "--msprobe-checkpoint-json"


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The checkpoint to compare with, the share of a norm that may differ, and msprobe's report or None."""

    golden: Path
    limit: float
    json: Path | None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same verdicts."""
        return [GOLDEN, str(self.golden), *([_LIMIT, f"{self.limit:g}"] if self.limit else [])]


checkpoint_key = pytest.StashKey[CheckpointOptions]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the plugin's group."""
    group.addoption(
        _LIMIT,
        metavar="SHARE",
        help="how far a parameter may be from the golden one, as a share of that one's norm (default: 0, equal values)",
    )
    group.addoption(_JSON, metavar="FILE", help="write l2, cos, numel and shape of each parameter here, as msprobe")


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where an option of ``--msprobe-checkpoint`` is given without it."""
    for flag in (_LIMIT, _JSON):
        if config.getoption(flag.removeprefix("--").replace("-", "_")) is not None:
            raise OptionError(f"{flag} is about checkpoints: give --msprobe-checkpoint PATH as well")


def read_options(config: pytest.Config) -> CheckpointOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    folder = config.invocation_params.dir
    golden = golden_path(config, "--msprobe-checkpoint", "checkpoint")
    json = config.getoption("msprobe_checkpoint_json")
    if json and (folder / json).is_dir():
        raise OptionError(f"{_JSON} {json!r}: expected a file")
    return CheckpointOptions(golden, _limit(config), folder / json if json else None)


def _limit(config: pytest.Config) -> float:
    text = config.getoption("msprobe_checkpoint_limit") or "0"
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < math.inf:
        raise OptionError(f"{_LIMIT} {text!r}: expected a number of at least 0")
    return limit
