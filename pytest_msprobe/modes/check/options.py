"""What a check is asked for beside what every run is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.check import save_limit
from pytest_msprobe.modes.check.baselines import options as baselines
from pytest_msprobe.modes.check.cases import options as cases
from pytest_msprobe.modes.check.explore import options as explore
from pytest_msprobe.modes.check.explore.options import ExploreOptions
from pytest_msprobe.storage.sizes import SaveOptions


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The baseline to judge by and the one to write, where failing cases are saved, how inputs are explored."""

    baseline: Path | None = None
    save_baseline: Path | None = None
    save_baseline_tensors: SaveOptions | None = None
    save: SaveOptions | None = None
    explore: ExploreOptions | None = None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same verdict."""
        words = ["--msprobe-baseline", str(self.baseline)] if self.baseline is not None else []
        return words + (["--msprobe-explore", str(self.explore.examples)] if self.explore is not None else [])


check_key = pytest.StashKey[CheckOptions]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options of a check."""
    baselines.add_options(group)
    cases.add_options(group)
    save_limit.add_options(group)
    explore.add_options(group)


def read_options(config: pytest.Config, *, is_chosen: bool) -> CheckOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    options = CheckOptions(
        baseline=baselines.baseline(config),
        save_baseline=baselines.save_baseline(config),
        save_baseline_tensors=baselines.save_baseline_tensors(config),
        save=cases.read_save_options(config),
        explore=explore.read_explore_options(config),
    )
    if not is_chosen and (options.baseline or options.save_baseline):
        raise OptionError(
            "--msprobe-baseline and --msprobe-save-baseline are about checks: give --msprobe-dump PATH to make one"
        )
    return options
