"""The options of a check that other runs do not have."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.modes.check import page_history, save_limit
from pytest_msprobe.modes.check.baselines import options as baselines
from pytest_msprobe.modes.check.cases import options as cases
from pytest_msprobe.modes.check.features import FeatureOptions, features_of
from pytest_msprobe.modes.check.reruns import rerun_options
from pytest_msprobe.modes.check.reruns.rerun_options import RerunOptions
from pytest_msprobe.run.mode import DeclaredMode, modes_of
from pytest_msprobe.run.option_fields import is_passed, read_fields
from pytest_msprobe.run.option_groups import HOW, RESULTS, option_group, parser_of
from pytest_msprobe.run.shared_options import HTML, html_file

if TYPE_CHECKING:
    from pytest_msprobe.devices.registry import DeviceChoice
    from pytest_msprobe.storage.limits import SaveOptions


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The baseline to judge by and the one to write, where failing cases are saved, and what is asked of features.

    ``remote_baseline`` is a remote device that judges in place of a ``baseline`` file. ``repeat`` is how often a call
    runs on the device, ``batch_invariant`` says that it runs on parts of its batch too, ``html`` is the page to write,
    with what the journals of a folder ``history`` hold.
    """

    baseline: Path | None = None
    remote_baseline: DeviceChoice | None = None
    save_baseline: Path | None = None
    save_baseline_tensors: SaveOptions | None = None
    save: SaveOptions | None = None
    repeat: int | None = None
    batch_invariant: bool = False
    html: Path | None = None
    history: Path | None = None
    features: tuple[FeatureOptions, ...] = ()

    @property
    def needs_golden(self) -> bool:
        """Return whether more is asked than verdicts: numbers or tensors of golden, or further runs of each call."""
        values = (self.baseline, self.remote_baseline, self.save_baseline, self.repeat)
        of_features = any(feature.needs_golden for feature in self.features)
        return self.batch_invariant or of_features or any(value is not None for value in values)

    def feature(self, name: str) -> FeatureOptions | None:
        """Return what is asked of a feature; None for nothing."""
        return next((feature for feature in self.features if feature.name == name), None)

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same verdict."""
        baseline = self.baseline or self.remote_baseline
        words = ["--msprobe-baseline", str(baseline)] if baseline is not None else []
        words += [word for name, value in self._asked().items() for word in (f"--msprobe-{name}", value) if word]
        return words + [word for feature in self.features for word in feature.words()]

    def settings(self) -> dict[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        settings = {feature.name: feature.journal_setting() for feature in self.features}
        requested = self._asked() | {name: setting for name, setting in settings.items() if setting}
        if self.remote_baseline is not None:
            return requested | {"baseline": self.remote_baseline.name}
        from pytest_msprobe.storage.naming import fingerprint

        return requested | ({"baseline": fingerprint(self.baseline)} if self.baseline is not None else {})

    def _asked(self) -> dict[str, str]:
        """Return what is asked of each record in addition to its verdict."""
        rows = {"batch-invariant": ""} if self.batch_invariant else {}
        return rows | ({"repeat": str(self.repeat)} if self.repeat is not None else {})


check_key = pytest.StashKey[CheckOptions]()

_CHECKS_ONLY = (
    "--msprobe-baseline",
    "--msprobe-save-baseline",
    "--msprobe-repeat",
    "--msprobe-batch-invariant",
    page_history.SETTING,
)


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options of a check to the groups of their jobs."""
    parser = parser_of(group)
    how, results = option_group(parser, HOW), option_group(parser, RESULTS)
    baselines.add_options(how, results)
    cases.add_options(results)
    save_limit.add_options(results)
    rerun_options.add_options(how)
    page_history.add_options(results)


def read_options(config: pytest.Config, *, is_chosen: bool) -> CheckOptions:
    """Read and check the options. Raises OptionError."""
    modes = modes_of(config)
    features = features_of(config)
    of_features = [flag for feature in features for flag in feature.checks_only()]
    for flag in () if is_chosen else (*_CHECKS_ONLY, *of_features):
        if is_passed(config, flag):
            modes.require_check(modes.chosen(config)[0], flag)
    reruns = read_fields(config, RerunOptions) if is_chosen else RerunOptions()
    return CheckOptions(
        baseline=baselines.baseline(config),
        remote_baseline=baselines.remote_baseline(config),
        save_baseline=baselines.save_baseline(config),
        save_baseline_tensors=baselines.save_baseline_tensors(config),
        save=cases.read_save_options(config),
        repeat=reruns.repeat,
        batch_invariant=reruns.batch_invariant,
        html=html_file(config),
        history=page_history.read_history(config),
        features=features.asked(config),
    )


CHECK = DeclaredMode(
    name="check",
    flag="--msprobe-dump",
    flag_help="dump.json to check, or a folder of them (repeatable)",
    home="pytest_msprobe.modes.check.mode:CheckMode",
    shared_options=(HTML,),
    add_options=add_options,
)
