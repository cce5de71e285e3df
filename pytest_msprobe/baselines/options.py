"""The options of recorded baselines."""

from __future__ import annotations

from pathlib import Path

import pytest


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options."""
    group.addoption(
        "--msprobe-baseline",
        metavar="FILE",
        help="judge by the errors that another device had on the same inputs: a file of --msprobe-save-baseline, or "
        "msprobe's accuracy_checking_details table (default: by the CPU's in the same dtypes)",
    )
    group.addoption(
        "--msprobe-save-baseline",
        metavar="FILE",
        help="write what was measured to this file, for --msprobe-baseline",
    )


def baseline(config: pytest.Config) -> Path | None:
    """Return the baseline to judge by."""
    return _path(config, "msprobe_baseline")


def save_baseline(config: pytest.Config) -> Path | None:
    """Return the baseline to write. Raises pytest.UsageError where the run cannot write a whole one."""
    path = _path(config, "msprobe_save_baseline")
    if path is None:
        return None
    if config.getoption("msprobe_resume"):
        raise pytest.UsageError(
            "--msprobe-save-baseline wants the numbers of every record, which a resumed run does not measure again: "
            "leave out --msprobe-resume"
        )
    if config.getoption("msprobe_explore"):
        raise pytest.UsageError(
            "--msprobe-save-baseline wants the numbers of the recorded inputs, and --msprobe-explore tells of others: "
            "leave one of them out"
        )
    if path.is_dir():
        raise pytest.UsageError(f"--msprobe-save-baseline {str(path)!r}: is a folder; wants a file")
    return path


def _path(config: pytest.Config, name: str) -> Path | None:
    text: str | None = config.getoption(name)
    return None if text is None else Path(config.invocation_params.dir / text)
