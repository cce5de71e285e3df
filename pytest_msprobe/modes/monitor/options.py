"""Options of ``--msprobe-monitor``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError

# As msprobe_hooks.instruments.rules has it, which loads numpy: not every start of pytest should.
_DTYPES = ("float64", "float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn")


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """How series are judged. ``dtype`` is what training computes in, ``json`` the folder for msprobe's anomalies."""

    dtype: str | None
    json: Path | None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same verdicts."""
        return ["--msprobe-monitor-dtype", self.dtype] if self.dtype else []

    def settings(self) -> dict[str, str]:
        """Return what a journal must agree with."""
        return {"monitor_dtype": self.dtype or "not given"}


monitor_key = pytest.StashKey[MonitorOptions]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the plugin's group."""
    add = group.addoption
    add(
        "--msprobe-monitor-dtype",
        metavar="DTYPE",
        help=f"dtype that training computes in, whose range series must keep to: {', '.join(_DTYPES)} (default: not "
        "judged)",
    )
    add(
        "--msprobe-monitor-json", metavar="DIR", help="write what broke a rule to rank<n>/anomaly.json here, as msprobe"
    )


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where an option of ``--msprobe-monitor`` is given without it."""
    for name in ("dtype", "json"):
        if config.getoption(f"msprobe_monitor_{name}"):
            raise OptionError(f"--msprobe-monitor-{name} is about watched training: give --msprobe-monitor RUN as well")


def read_options(config: pytest.Config) -> MonitorOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    dtype, json = config.getoption("msprobe_monitor_dtype"), config.getoption("msprobe_monitor_json")
    if dtype and dtype not in _DTYPES:
        raise OptionError(f"--msprobe-monitor-dtype {dtype!r}: allowed are {', '.join(_DTYPES)}")
    return MonitorOptions(dtype or None, Path(config.invocation_params.dir / json) if json else None)


def make_folder(folder: Path) -> None:
    """Make the folder of msprobe's files now, so that a wrong one costs no run. Raises OptionError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"--msprobe-monitor-json {str(folder)!r}: {error.strerror}") from None
