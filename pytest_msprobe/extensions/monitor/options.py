"""Options of ``--msprobe-monitor``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import no_effect, unknown_value
from pytest_msprobe.run.shared_options import GOLDEN

#: As msprobe_hooks.extensions.monitor.rules has it, which loads numpy: not every start of pytest should.
DTYPES = ("float64", "float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn")


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """How series are judged. ``dtype`` is what training computes in, ``json`` the folder for msprobe's anomalies.

    ``golden`` is the folder of a run to compare with, ``reruns`` those of golden runs that differ in rounding only.
    """

    dtype: str | None
    json: Path | None
    golden: Path | None = None
    reruns: tuple[Path, ...] = ()

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same verdicts."""
        words = ["--msprobe-monitor-dtype", self.dtype] if self.dtype else []
        words += [GOLDEN, str(self.golden)] if self.golden else []
        return words + [word for rerun in self.reruns for word in ("--msprobe-golden-rerun", str(rerun))]

    def settings(self) -> dict[str, str]:
        """Return what a journal must agree with."""
        compared = {"golden": str(self.golden or "none"), "golden_reruns": ", ".join(map(str, self.reruns)) or "none"}
        return {"monitor_dtype": self.dtype or "not given", **compared}


monitor_key = pytest.StashKey[MonitorOptions]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options to the plugin's group."""
    add = group.addoption
    add(
        "--msprobe-monitor-dtype",
        metavar="DTYPE",
        help=f"dtype of the training, whose range series must stay within: {', '.join(DTYPES)} (default: the range is "
        "not judged)",
    )
    add(
        "--msprobe-monitor-json",
        metavar="DIR",
        help="write findings to rank<n>/anomaly.json in this folder, in msprobe's format",
    )
    add(
        "--msprobe-golden-rerun",
        metavar="RUN",
        action="append",
        default=[],
        help="monitored run with the seed and data of --msprobe-golden that differs only in the order of reductions: "
        "the tolerance follows from how far such runs drift apart (repeatable)",
    )


def refuse_stray_options(config: pytest.Config) -> None:
    """Raise OptionError where an option of ``--msprobe-monitor`` is passed without it."""
    for name in ("dtype", "json"):
        if config.getoption(f"msprobe_monitor_{name}"):
            raise no_effect(f"--msprobe-monitor-{name}", "--msprobe-monitor RUN")
    if config.getoption("msprobe_golden_rerun"):
        raise no_effect("--msprobe-golden-rerun", "--msprobe-monitor RUN")


def read_options(config: pytest.Config) -> MonitorOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    dtype, json = config.getoption("msprobe_monitor_dtype"), config.getoption("msprobe_monitor_json")
    if dtype and dtype not in DTYPES:
        raise unknown_value("--msprobe-monitor-dtype", dtype, DTYPES)
    folder = config.invocation_params.dir
    golden, reruns = config.getoption("msprobe_golden"), config.getoption("msprobe_golden_rerun")
    if reruns and not golden:
        raise no_effect("--msprobe-golden-rerun", f"{GOLDEN} RUN")
    return MonitorOptions(
        dtype or None,
        folder / json if json else None,
        folder / golden if golden else None,
        tuple(folder / rerun for rerun in reruns),
    )
