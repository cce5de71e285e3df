"""The options that explore inputs around the recorded ones."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.check.features import CheckFeature, FeatureOptions
from pytest_msprobe.run.option_fields import is_passed, number, option, read_fields, refuse_without, setting

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.modes.check.follow_ups import FollowUp
    from pytest_msprobe.modes.check.save_case import SaveFailure
    from pytest_msprobe.reports.summary import Tally
    from pytest_msprobe.run.options import Options

_DEFAULT_SECONDS = 20.0  # a choice


def _examples(config: pytest.Config, name: str, text: str) -> int:
    if config.getoption("msprobe_save_baseline"):
        raise OptionError(
            f"--msprobe-save-baseline needs the numbers of the recorded inputs, and {name} tries others",
            remedy="remove one of them",
        )
    if not text.isdecimal() or int(text) == 0:
        raise OptionError(f"{name} {text!r}: expected a positive number of inputs")
    if importlib.util.find_spec("hypothesis") is None:
        raise OptionError(f"{name} needs hypothesis", remedy="pip install 'pytest-msprobe[explore]'")
    return int(text)


@dataclass(frozen=True, slots=True)
class ExploreOptions(FeatureOptions):
    """Number of inputs that are tried per item, and of seconds at most."""

    examples: int = option(
        "--msprobe-explore",
        "try N more inputs per record, within and around the recorded ranges, and shrink one that fails (default: "
        "none)",
        metavar="N",
        read=_examples,
    )
    seconds: float = setting(
        "msprobe_explore_time",
        f"maximum seconds that --msprobe-explore spends on one record (default: {_DEFAULT_SECONDS:g})",
        kind="float",
        read=number(float, "a positive number of seconds", lambda seconds: 0 < seconds < math.inf),
        default=_DEFAULT_SECONDS,
        rerun=False,
    )

    name = "explore"
    needs_golden = True

    def journal_setting(self) -> str:
        """Return the number of inputs."""
        return str(self.examples)

    def last_step(self, options: Options, save: SaveFailure | None) -> FollowUp:
        """Return the search around each record."""
        failures = importlib.import_module("pytest_msprobe.extensions.explore.explore_failures")
        step: FollowUp = failures.Explore(self, options.timeout, save)
        return step

    def within(self, timeout: float | None, passed: float) -> ExploreOptions:
        """Return the same for an item that has a time limit, of which some seconds have passed.

        A tenth of the limit is kept for judging the last input and reporting it.
        """
        left = self.seconds if timeout is None else 0.9 * timeout - passed
        return replace(self, seconds=max(0.0, min(self.seconds, left)))


def drawn_options(options: ExploreOptions | None, usual_examples: int) -> ExploreOptions:
    """Return how a test's own strategies are explored: as ``--msprobe-explore`` says, else as Hypothesis would."""
    return options or ExploreOptions(usual_examples, _DEFAULT_SECONDS)


class ExploreFeature(CheckFeature):
    """Inputs around the recorded ones."""

    name = "explore"
    options = ExploreOptions

    def read_options(self, config: pytest.Config) -> ExploreOptions | None:
        """Return what the user asked for, None where nothing is explored. Raises OptionError."""
        if is_passed(config, "--msprobe-explore"):
            return read_fields(config, ExploreOptions)
        refuse_without(config, ExploreOptions, "--msprobe-explore N")
        return None

    def tallies(self, *, in_detail: bool) -> Collection[Tally]:
        """Return what counts the inputs."""
        from pytest_msprobe.extensions.explore.explored_tally import ExploredTally

        return (ExploredTally(),)
