"""Options of the page of monitored runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_msprobe.run.option_fields import output_file, read_fields, refuse_without, setting, shared
from pytest_msprobe.run.shared_options import HTML


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


def read_options(config: pytest.Config) -> PageOptions | None:
    """Return what was asked for, None where no page was. Raises OptionError."""
    options = read_fields(config, PageOptions)
    if options.path is None:
        refuse_without(config, PageOptions, f"{HTML} FILE")
        return None
    return options
