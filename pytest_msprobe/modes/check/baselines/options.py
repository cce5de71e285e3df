"""The options of recorded baselines."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.devices.registry import DeviceChoice, parse_device
from pytest_msprobe.errors import DeviceError, OptionError
from pytest_msprobe.modes.check.baselines.tensor_folder import tensors_folder
from pytest_msprobe.modes.check.save_limit import save_options
from pytest_msprobe.run.options import devices_key
from pytest_msprobe.storage.limits import SaveOptions


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options."""
    group.addoption(
        "--msprobe-baseline",
        metavar="FILE|remote:SPEC",
        help="judge by the errors that another device had on the same inputs: a file of --msprobe-save-baseline, "
        "msprobe's accuracy_checking_details table, or a card elsewhere in this very run, as in "
        "remote:ssh=user@host//python=/path/to/python (default: by the CPU's in the same dtypes)",
    )
    group.addoption(
        "--msprobe-save-baseline",
        metavar="FILE",
        help="write what was measured to this file, for --msprobe-baseline",
    )
    group.addoption(
        "--msprobe-save-baseline-tensors",
        action="store_true",
        help="with --msprobe-save-baseline FILE, also write the device's results to the folder FILE.tensors, by which "
        "--msprobe-baseline then judges element by element, under any policy",
    )


def baseline(config: pytest.Config) -> Path | None:
    """Return the file of the baseline to judge by."""
    return None if _names_card(config) else _path(config, "msprobe_baseline")


def remote_baseline(config: pytest.Config) -> DeviceChoice | None:
    """Return the card elsewhere to judge by. Raises OptionError where nothing can be one."""
    if not _names_card(config):
        return None
    devices = config.stash[devices_key]
    try:
        choice = parse_device(config.getoption("msprobe_baseline"), devices)
        devices.get(choice.name)
    except DeviceError as error:
        raise OptionError(f"--msprobe-baseline: {error}") from None
    return choice


def _names_card(config: pytest.Config) -> bool:
    return (config.getoption("msprobe_baseline") or "").startswith("remote:")


def save_baseline(config: pytest.Config) -> Path | None:
    """Return the baseline to write. Raises OptionError where the run cannot write a whole one."""
    path = _path(config, "msprobe_save_baseline")
    if path is None:
        return None
    if config.getoption("msprobe_resume"):
        raise OptionError(
            "--msprobe-save-baseline requires the numbers of every record, which a resumed run does not measure again: "
            "leave out --msprobe-resume"
        )
    if config.getoption("msprobe_explore"):
        raise OptionError(
            "--msprobe-save-baseline requires the numbers of the recorded inputs, and --msprobe-explore tells of "
            "others: leave one of them out"
        )
    if path.is_dir():
        raise OptionError(f"--msprobe-save-baseline {str(path)!r}: is a folder; expected a file")
    return path


def save_baseline_tensors(config: pytest.Config) -> SaveOptions | None:
    """Return where and how much of the tensors to write. Raises OptionError where they cannot be."""
    if not config.getoption("msprobe_save_baseline_tensors"):
        return None
    path = _path(config, "msprobe_save_baseline")
    if path is None:
        raise OptionError("--msprobe-save-baseline-tensors adds to a baseline: give --msprobe-save-baseline FILE")
    folder = tensors_folder(path)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"--msprobe-save-baseline-tensors: {folder} is a file; expected a folder")
    return save_options(config, folder, "--msprobe-save-baseline-tensors")


def _path(config: pytest.Config, name: str) -> Path | None:
    text: str | None = config.getoption(name)
    return None if text is None else Path(config.invocation_params.dir / text)
