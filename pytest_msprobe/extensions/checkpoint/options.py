"""Options of ``--msprobe-checkpoint``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError, no_effect
from pytest_msprobe.run.shared_options import (
    GOLDEN,
    MODEL_CONFIG,
    MODEL_NAMES,
    golden_path,
    model_config,
    model_name_files,
)

_LIMIT, _JSON = "--msprobe-checkpoint-limit", "--msprobe-checkpoint-json"
_EARLIER = "--msprobe-checkpoint-earlier"


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The checkpoint to compare with, the share of a norm that may differ, and msprobe's report or None.

    ``earlier`` are golden checkpoints of earlier steps, ``names`` files of names, ``config`` the model's configuration.
    """

    golden: Path
    limit: float
    json: Path | None
    earlier: tuple[Path, ...] = ()
    names: tuple[Path, ...] = ()
    config: Path | None = None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same verdicts."""
        words = [GOLDEN, str(self.golden), *([_LIMIT, f"{self.limit:g}"] if self.limit else [])]
        for flag, paths in ((_EARLIER, self.earlier), (MODEL_NAMES, self.names)):
            words += [word for path in paths for word in (flag, str(path))]
        return words + ([MODEL_CONFIG, str(self.config)] if self.config else [])


checkpoint_key = pytest.StashKey[CheckpointOptions]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the plugin's group."""
    group.addoption(
        _LIMIT,
        metavar="SHARE",
        help="maximum distance of a parameter from the golden one, as a share of the golden norm, such as 1e-6 "
        "(default: 0, equal values)",
    )
    group.addoption(
        _JSON, metavar="FILE", help="write l2, cos, numel and shape of each parameter to this file, in msprobe's format"
    )
    group.addoption(
        _EARLIER,
        metavar="PATH",
        action="append",
        help="golden checkpoint of an earlier step: a parameter that is still equal to it is named; may be repeated",
    )


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where an option of ``--msprobe-checkpoint`` is passed without it."""
    for flag in (_LIMIT, _JSON, _EARLIER):
        if config.getoption(flag.removeprefix("--").replace("-", "_")) is not None:
            raise no_effect(flag, "--msprobe-checkpoint PATH")


def read_options(config: pytest.Config) -> CheckpointOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    folder = config.invocation_params.dir
    golden = golden_path(config, "--msprobe-checkpoint", "checkpoint")
    json = config.getoption("msprobe_checkpoint_json")
    if json and (folder / json).is_dir():
        raise OptionError(f"{_JSON} {json!r}: a directory", remedy="pass the name of a file")
    earlier = config.getoption("msprobe_checkpoint_earlier") or []
    for path in earlier:
        if not (folder / path).exists():
            raise OptionError(f"{_EARLIER} {path!r}: no such file or directory")
    return CheckpointOptions(
        golden,
        _limit(config),
        folder / json if json else None,
        tuple(folder / path for path in earlier),
        model_name_files(config),
        model_config(config),
    )


def _limit(config: pytest.Config) -> float:
    text = config.getoption("msprobe_checkpoint_limit") or "0"
    try:
        limit = float(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < math.inf:
        raise OptionError(f"{_LIMIT} {text!r}: expected a number of at least 0")
    return limit
