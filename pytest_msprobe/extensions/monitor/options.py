"""Options of ``--msprobe-monitor`` and of its page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.errors import no_effect
from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.option_fields import (
    as_path,
    one_of,
    option,
    output_file,
    read_fields,
    refuse_without,
    setting,
    shared,
)
from pytest_msprobe.run.shared_options import GOLDEN, HTML, JSON


@dataclass(frozen=True, slots=True)
class PageOptions:
    """The page's file, and shell patterns of the tensors and modules whose series it keeps step by step."""

    path: Path | None = shared(HTML, read=output_file)
    exact: tuple[str, ...] = setting(
        "msprobe_html_exact",
        "series that the page of a long monitored run keeps step by step, such as 'layers.0.*' (default: the minimum "
        "and maximum of several steps)",
        kind="args",
    )


def read_page_options(config: pytest.Config) -> PageOptions | None:
    """Return what was asked for, None where no page was. Raises OptionError."""
    options = read_fields(config, PageOptions)
    if options.path is None:
        refuse_without(config, PageOptions, f"{HTML} FILE")
        return None
    return options


#: As msprobe_hooks.extensions.monitor.rules has it, which loads numpy: not every start of pytest should.
DTYPES = ("float64", "float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn")

_RERUN = "--msprobe-golden-rerun"


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """Rules of judging series. ``dtype`` is what training computes in, ``json`` the folder for msprobe's anomalies.

    ``golden`` is the folder of a run to compare with, ``reruns`` those of golden runs that differ in rounding only.
    """

    dtype: str | None = setting(
        "msprobe_monitor_dtype",
        f"dtype of the training, whose range series must stay within: {', '.join(DTYPES)} (default: the range is not "
        "judged)",
        read=one_of(*DTYPES),
    )
    json: Path | None = shared(JSON, read=as_path, rerun=False, journal=False)
    golden: Path | None = shared(GOLDEN, read=as_path)
    reruns: tuple[Path, ...] = option(
        _RERUN,
        "monitored run with the seed and data of --msprobe-golden that differs only in the order of reductions: "
        "the tolerance follows from how far such runs drift apart (repeatable)",
        metavar="RUN",
        read=as_path,
        repeat=True,
    )

    def settings(self) -> dict[str, str]:
        """Return what a journal must agree with."""
        compared = {"golden": str(self.golden or "none"), "golden_reruns": ", ".join(map(str, self.reruns)) or "none"}
        return {"monitor_dtype": self.dtype or "not given", **compared}


monitor_key = pytest.StashKey[MonitorOptions]()


def read_options(config: pytest.Config) -> MonitorOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    options = read_fields(config, MonitorOptions)
    if options.reruns and options.golden is None:
        raise no_effect(_RERUN, f"{GOLDEN} RUN")
    return options


MONITOR = DeclaredMode(
    name="monitor",
    flag="--msprobe-monitor",
    flag_help="judge the series of this monitored run: the folder that it wrote, of one rank or of all ranks",
    home="pytest_msprobe.extensions.monitor.mode:MonitorMode",
    shared_options=(GOLDEN, HTML, JSON),
    options=(MonitorOptions, PageOptions),
    metavar="RUN",
)
