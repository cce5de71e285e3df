"""The options that ask for graph files, which several kinds of run understand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_msprobe.errors import no_effect, unknown_value
from pytest_msprobe.extensions.graphs.vis.graph_folder import Form, require_free

VIS, FORMAT, STACK = "--msprobe-vis", "--msprobe-vis-format", "--msprobe-vis-complete-stack"
OPTIONS = (VIS, FORMAT, STACK)
FORMS: tuple[Form, ...] = ("db", "json")


@dataclass(frozen=True, slots=True)
class VisOptions:
    """Where graph files go, in which form, and whether nodes show their whole call stack."""

    folder: Path
    form: Form = "db"
    all_frames: bool = False


def add_options(group: Any) -> None:
    """Add the options."""
    add = group.addoption
    add(VIS, metavar="DIR", help="write the graph of the run, or of both runs, to this folder for msprobe's viewer")
    add(
        FORMAT,
        metavar="NAME",
        help=f"format of these graphs: {' (one file) or '.join(FORMS)} (default: {FORMS[0]})",
    )
    add(STACK, action="store_true", help="show the whole call stack of each node of these graphs (default: one line)")


def read_options(config: pytest.Config) -> VisOptions | None:
    """Read and check the options, None where no graph is asked for. Raises OptionError or FolderError."""
    folder, form = config.getoption("msprobe_vis"), config.getoption("msprobe_vis_format")
    all_frames = bool(config.getoption("msprobe_vis_complete_stack"))
    if not folder:
        if form or all_frames:
            raise no_effect(FORMAT if form else STACK, f"{VIS} DIR")
        return None
    if form not in (None, *FORMS):
        raise unknown_value(FORMAT, form, FORMS)
    path: Path = config.invocation_params.dir / folder
    # Only the process that writes the graphs may find them there: workers start later.
    if not hasattr(config, "workerinput"):
        require_free(path)
    return VisOptions(path, cast("Form", form or FORMS[0]), all_frames)
