"""The options of a check that other runs do not have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.extensions.explore import options as explore
from pytest_msprobe.extensions.explore.options import ExploreOptions
from pytest_msprobe.extensions.screening import screening_options as screening
from pytest_msprobe.modes.check import page_history, save_limit
from pytest_msprobe.modes.check.baselines import options as baselines
from pytest_msprobe.modes.check.cases import options as cases
from pytest_msprobe.modes.check.reruns import rerun_options
from pytest_msprobe.modes.check.reruns.rerun_options import RerunOptions
from pytest_msprobe.run.mode import DeclaredMode, destination, modes_of
from pytest_msprobe.run.option_fields import read_fields
from pytest_msprobe.run.option_groups import HOW, RESULTS, option_group, parser_of
from pytest_msprobe.run.shared_options import HTML, html_file

if TYPE_CHECKING:
    from pytest_msprobe.devices.registry import DeviceChoice
    from pytest_msprobe.storage.limits import SaveOptions


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The baseline to judge by and the one to write, where failing cases are saved, how inputs are explored.

    ``remote_baseline`` is a remote device that judges in place of a ``baseline`` file. ``repeat`` is how often a call
    runs on the device, ``batch_invariant`` says that it runs on parts of its batch too, ``perturb`` is the name of the
    perturbation of its inputs, ``html`` the page to write, with what the journals of a folder ``history`` hold.
    Products of more than ``screen_above`` billion operations are screened; None where all is checked exactly.
    """

    baseline: Path | None = None
    remote_baseline: DeviceChoice | None = None
    save_baseline: Path | None = None
    save_baseline_tensors: SaveOptions | None = None
    save: SaveOptions | None = None
    explore: ExploreOptions | None = None
    repeat: int | None = None
    batch_invariant: bool = False
    perturb: str | None = None
    html: Path | None = None
    history: Path | None = None
    screen_above: float | None = screening.SCREENED_ABOVE

    @property
    def needs_golden(self) -> bool:
        """Whether more is asked than verdicts: numbers or tensors of golden, or further runs of each call."""
        given = (self.baseline, self.remote_baseline, self.save_baseline, self.explore, self.repeat, self.perturb)
        return self.batch_invariant or any(each is not None for each in given)

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same verdict."""
        given = self.baseline or self.remote_baseline
        words = ["--msprobe-baseline", str(given)] if given is not None else []
        words += [word for name, value in self._asked().items() for word in (f"--msprobe-{name}", value) if word]
        return words + screening.asked(self.screen_above)

    def settings(self) -> dict[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        screened = screening.asked(self.screen_above)
        asked = self._asked() | ({"screening": " ".join(screened)} if screened else {})
        if self.remote_baseline is not None:
            return asked | {"baseline": self.remote_baseline.name}
        if self.baseline is None:
            return asked
        from pytest_msprobe.storage.naming import fingerprint

        return asked | {"baseline": fingerprint(self.baseline)}

    def _asked(self) -> dict[str, str]:
        """Return what is asked of each record in addition to its verdict."""
        examples = None if self.explore is None else self.explore.examples
        asked = {"explore": examples, "repeat": self.repeat, "perturb": self.perturb}
        rows = {"batch-invariant": ""} if self.batch_invariant else {}
        return rows | {name: str(value) for name, value in asked.items() if value is not None}


check_key = pytest.StashKey[CheckOptions]()

_CHECKS_ONLY = (
    "--msprobe-baseline",
    "--msprobe-save-baseline",
    "--msprobe-repeat",
    "--msprobe-perturb",
    "--msprobe-batch-invariant",
)


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options of a check to the groups of their jobs."""
    parser = parser_of(group)
    how, results = option_group(parser, HOW), option_group(parser, RESULTS)
    baselines.add_options(how, results)
    cases.add_options(results)
    save_limit.add_options(results)
    explore.add_options(how)
    rerun_options.add_options(how)
    screening.add_options(how)
    page_history.add_options(results)


def read_options(config: pytest.Config, *, is_chosen: bool) -> CheckOptions:
    """Read and check the options. Raises OptionError."""
    modes = modes_of(config)
    for flag in () if is_chosen else _CHECKS_ONLY:
        if config.getoption(destination(flag)):
            modes.require_check(modes.chosen(config)[0], flag)
    reruns = read_fields(config, RerunOptions) if is_chosen else RerunOptions()
    return CheckOptions(
        baseline=baselines.baseline(config),
        remote_baseline=baselines.remote_baseline(config),
        save_baseline=baselines.save_baseline(config),
        save_baseline_tensors=baselines.save_baseline_tensors(config),
        save=cases.read_save_options(config),
        explore=explore.read_explore_options(config),
        repeat=reruns.repeat,
        batch_invariant=reruns.batch_invariant,
        perturb=reruns.perturb,
        html=html_file(config),
        history=page_history.read_history(config),
        screen_above=screening.read_screen_above(config),
    )


CHECK = DeclaredMode(
    name="check",
    flag="--msprobe-dump",
    flag_help="dump.json to check, or a folder of them (repeatable)",
    home="pytest_msprobe.modes.check.mode:CheckMode",
    shared_options=(HTML,),
    add_options=add_options,
)
