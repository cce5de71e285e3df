"""The options of recorded baselines."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import DeviceError, OptionError
from pytest_msprobe.modes.check.save_limit import save_options
from pytest_msprobe.run.option_fields import add_fields, read_field, refuse_without, setting
from pytest_msprobe.run.options import devices_key

if TYPE_CHECKING:
    from pytest_msprobe.devices.registry import DeviceChoice
    from pytest_msprobe.storage.limits import SaveOptions

_TENSORS = "msprobe_save_baseline_tensors"


@dataclass(frozen=True, slots=True)
class _Tensors:
    """Whether tensors are written as well."""

    are_saved: bool = setting(
        _TENSORS,
        "whether --msprobe-save-baseline FILE also writes the device's results, to the folder FILE.tensors: "
        "--msprobe-baseline then judges element by element, under any policy (default: false)",
        kind="bool",
    )


def add_options(how: pytest.OptionGroup, results: pytest.OptionGroup) -> None:
    """Add the option that chooses a baseline to a group, and those that write one to another."""
    how.addoption(
        "--msprobe-baseline",
        metavar="FILE|remote:SPEC",
        help="judge by the errors of another device on the same inputs: a file of --msprobe-save-baseline, msprobe's "
        "accuracy_checking_details table, or a remote device, such as remote:ssh=user@host//python=/path/to/python "
        "(default: the CPU in the same dtypes)",
    )
    results.addoption(
        "--msprobe-save-baseline",
        metavar="FILE",
        help="write the measured errors to this file, for --msprobe-baseline of another run",
    )
    add_fields(results, _Tensors)


def baseline(config: pytest.Config) -> Path | None:
    """Return the file of the baseline to judge by."""
    return None if _names_card(config) else _path(config, "msprobe_baseline")


def remote_baseline(config: pytest.Config) -> DeviceChoice | None:
    """Return the remote device to judge by. Raises OptionError where the name is not one."""
    if not _names_card(config):
        return None
    from pytest_msprobe.devices.registry import parse_device

    devices = config.stash[devices_key]
    try:
        from pytest_msprobe.devices.registry import parse_device

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
            "--msprobe-save-baseline needs the numbers of every record, and a resumed run measures only the rest",
            remedy="remove --msprobe-resume",
        )
    if path.is_dir():
        raise OptionError(f"--msprobe-save-baseline {str(path)!r}: a directory", remedy="pass the name of a file")
    return path


def save_baseline_tensors(config: pytest.Config) -> SaveOptions | None:
    """Return where and how much of the tensors to write. Raises OptionError where they cannot be."""
    path = _path(config, "msprobe_save_baseline")
    if path is None:
        refuse_without(config, _Tensors, "--msprobe-save-baseline FILE")
    if path is None or not read_field(config, _Tensors, "are_saved"):
        return None
    from pytest_msprobe.modes.check.baselines.tensor_folder import tensors_folder

    folder = tensors_folder(path)
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{_TENSORS}: {folder} is not a directory")
    return save_options(config, folder, _TENSORS)


def _path(config: pytest.Config, name: str) -> Path | None:
    text: str | None = config.getoption(name)
    return None if text is None else Path(config.invocation_params.dir / text)
