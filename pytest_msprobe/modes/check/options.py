"""The options of a check that other runs do not have."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import DeviceError, OptionError, no_effect
from pytest_msprobe.modes.check.features import FeatureOptions, features_of
from pytest_msprobe.run.mode import DeclaredMode, modes_of
from pytest_msprobe.run.msprobe_config import run_ut
from pytest_msprobe.run.option_data import HOW, RESULTS
from pytest_msprobe.run.option_fields import (
    as_path,
    is_passed,
    number,
    option,
    output_file,
    output_folder,
    read_field,
    setting,
)
from pytest_msprobe.run.options import devices_key
from pytest_msprobe.run.shared_options import HTML, html_file

if TYPE_CHECKING:
    from pytest_msprobe.devices.registry import DeviceChoice
    from pytest_msprobe.storage.limits import SaveOptions

_BASELINE, _SAVE_BASELINE, _TENSORS = "--msprobe-baseline", "--msprobe-save-baseline", "msprobe_save_baseline_tensors"
_FAILURES, _LIMIT, _HISTORY = "--msprobe-save-failures", "msprobe_save_limit", "msprobe_history"
_DEFAULT_LIMIT = "1GiB,10GiB"


def _baseline(config: pytest.Config, name: str, text: str) -> Path | DeviceChoice:
    if not text.startswith("remote:"):
        return as_path(config, name, text)
    from pytest_msprobe.devices.registry import parse_device

    devices = config.stash[devices_key]
    try:
        choice = parse_device(text, devices)
        devices.get(choice.name)
    except DeviceError as error:
        raise OptionError(f"{name}: {error}") from None
    return choice


def _folder(config: pytest.Config, name: str, text: str) -> Path:
    path = as_path(config, name, text)
    if not path.is_dir():
        raise OptionError(f"{name} {text!r}: {'not a directory' if path.exists() else 'no such directory'}")
    return path


@dataclass(frozen=True, slots=True)
class _Declared:
    """Options and settings as they are written; each is read where it has an effect."""

    baseline: Path | DeviceChoice | None = option(
        _BASELINE,
        "judge by the errors of another device on the same inputs: a file of --msprobe-save-baseline, msprobe's "
        "accuracy_checking_details table, or a remote device, such as remote:ssh=user@host//python=/path/to/python "
        "(default: the CPU in the same dtypes)",
        metavar="FILE|remote:SPEC",
        read=_baseline,
        group=HOW,
    )
    save_baseline: Path | None = option(
        _SAVE_BASELINE,
        "write the measured errors to this file, for --msprobe-baseline of another run",
        metavar="FILE",
        read=output_file,
        group=RESULTS,
    )
    are_tensors_saved: bool = setting(
        _TENSORS,
        "whether --msprobe-save-baseline FILE also writes the device's results, to the folder FILE.tensors: "
        "--msprobe-baseline then judges element by element, under any policy (default: false)",
        kind="bool",
    )
    save_failures: Path | None = option(
        _FAILURES,
        "save the inputs and results of each failing record to this folder, for pytest-msprobe replay",
        metavar="DIR",
        read=output_folder,
        group=RESULTS,
    )
    save_limit: str = setting(
        _LIMIT,
        "maximum size of one saved case, or of one record's baseline tensors, and of the whole folder, ONE[,FOLDER], "
        f"such as 500MiB,20GiB (default: {_DEFAULT_LIMIT})",
        default=_DEFAULT_LIMIT,
    )
    repeat: int | None = option(
        "--msprobe-repeat",
        "run each call N times on the device, 2 or more, and fail calls whose results differ (default: once)",
        metavar="N",
        read=number(int, "a number of runs, 2 or more", lambda times: times >= 2),
        group=HOW,
    )
    batch_invariant: bool = option(
        "--msprobe-batch-invariant",
        "run each call whose rows are independent on single rows and other parts of its batch too, and fail calls "
        "whose rows then have other bits (default: the whole batch only)",
        group=HOW,
    )
    history: Path | None = setting(
        _HISTORY,
        "folder of journals, *.jsonl: the page of a check shows what they hold of each record",
        read=_folder,
    )


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
        from pytest_msprobe.storage.files import fingerprint

        return requested | ({"baseline": fingerprint(self.baseline)} if self.baseline is not None else {})

    def _asked(self) -> dict[str, str]:
        """Return what is asked of each record in addition to its verdict."""
        rows = {"batch-invariant": ""} if self.batch_invariant else {}
        return rows | ({"repeat": str(self.repeat)} if self.repeat is not None else {})


check_key = pytest.StashKey[CheckOptions]()

_CHECKS_ONLY = (_BASELINE, _SAVE_BASELINE, "--msprobe-repeat", "--msprobe-batch-invariant", _HISTORY)


def read_options(config: pytest.Config, *, is_chosen: bool) -> CheckOptions:
    """Read and check the options. Raises OptionError."""
    modes = modes_of(config)
    features = features_of(config)
    of_features = [flag for feature in features for flag in feature.checks_only()]
    for flag in () if is_chosen else (*_CHECKS_ONLY, *of_features):
        if is_passed(config, flag):
            modes.require_check(modes.chosen(config)[0], flag)
    baseline = read_field(config, _Declared, "baseline")
    is_file = isinstance(baseline, Path)
    save_baseline = _read_save_baseline(config)
    return CheckOptions(
        baseline=baseline if is_file else None,
        remote_baseline=None if is_file else baseline,
        save_baseline=save_baseline,
        save_baseline_tensors=_read_save_tensors(config, save_baseline),
        save=_read_save_failures(config, save_baseline),
        repeat=read_field(config, _Declared, "repeat"),
        batch_invariant=read_field(config, _Declared, "batch_invariant"),
        html=html_file(config),
        history=_read_history(config),
        features=features.asked(config),
    )


def _read_save_baseline(config: pytest.Config) -> Path | None:
    """Return the baseline to write. Raises OptionError where the run cannot write a whole one."""
    path: Path | None = read_field(config, _Declared, "save_baseline")
    if path is not None and is_passed(config, "--msprobe-resume"):
        raise OptionError(
            f"{_SAVE_BASELINE} needs the numbers of every record, and a resumed run measures only the rest",
            remedy="remove --msprobe-resume",
        )
    return path


def _read_save_tensors(config: pytest.Config, baseline: Path | None) -> SaveOptions | None:
    """Return where and how much of a baseline's tensors to write. Raises OptionError where they cannot be."""
    if baseline is None:
        _refuse(config, _TENSORS, f"{_SAVE_BASELINE} FILE")
        return None
    if not read_field(config, _Declared, "are_tensors_saved"):
        return None
    from pytest_msprobe.modes.check.baselines.tensor_folder import tensors_folder

    folder = tensors_folder(baseline)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{_TENSORS}: {folder} is not a directory")
    return _save_options(config, folder, _TENSORS)


def _read_save_failures(config: pytest.Config, baseline: Path | None) -> SaveOptions | None:
    """Return where failing cases are saved, as an option or msprobe's configuration says; None where they are not."""
    folder: Path | None = read_field(config, _Declared, "save_failures")
    of_peer = run_ut(config).error_data_path
    if folder is None and of_peer is not None:
        folder = output_folder(config, _FAILURES, str(of_peer))
    if folder is not None:
        return _save_options(config, folder, _FAILURES)
    if baseline is None:
        _refuse(config, _LIMIT, f"{_FAILURES} DIR")
    return None


def _save_options(config: pytest.Config, folder: Path, option: str) -> SaveOptions:
    """Return how an option's files are saved.

    Raises OptionError where the limits are not sizes or safetensors is not installed.
    """
    from pytest_msprobe.storage.limits import SaveOptions, parse_limits

    if importlib.util.find_spec("safetensors") is None:
        raise OptionError(f"{option} needs safetensors", remedy="pip install 'pytest-msprobe[cases]'")
    try:
        return SaveOptions(folder, *parse_limits(read_field(config, _Declared, "save_limit")))
    except ValueError as error:
        raise OptionError(f"{_LIMIT} {error}") from None


def _read_history(config: pytest.Config) -> Path | None:
    """Return the folder of journals, None where there is no page or none is set. Raises OptionError."""
    if html_file(config) is None:
        _refuse(config, _HISTORY, f"{HTML} FILE")
        return None
    folder: Path | None = read_field(config, _Declared, "history")
    return folder


def _refuse(config: pytest.Config, name: str, needed: str) -> None:
    """Raise OptionError where a setting is passed without the option that it belongs to."""
    if is_passed(config, name):
        raise no_effect(name, needed)


CHECK = DeclaredMode(
    name="check",
    flag="--msprobe-dump",
    flag_help="dump.json to check, or a folder of them (repeatable)",
    home="pytest_msprobe.modes.check.mode:CheckMode",
    shared_options=(HTML,),
    options=(_Declared,),
)
