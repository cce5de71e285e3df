"""Options that name the parallel layouts of both runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_msprobe.modes.compare.options import PartOptions
from pytest_msprobe.run.option_fields import option

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.modes.compare.runs import Layout

_HELP = (
    "parallel layout of the {} run, whose ranks are merged into one model: tp=2,cp=2,ep=2,pp=2[,vpp=2]"
    "[,order=...] or a YAML file"
)


def _layout(config: pytest.Config, name: str, text: str) -> Layout:
    from pytest_msprobe.extensions.merged_ranks.layouts import parse_layout

    return parse_layout(name, text, config.invocation_params.dir)


@dataclass(frozen=True, slots=True)
class LayoutOptions(PartOptions):
    """Layouts by which ranks hold one model together and become one run, None for ranks that are compared each."""

    target_layout: Layout | None = option(
        "--msprobe-target-layout", _HELP.format("target"), metavar="LAYOUT", read=_layout
    )
    golden_layout: Layout | None = option(
        "--msprobe-golden-layout", _HELP.format("golden"), metavar="LAYOUT", read=_layout
    )

    @property
    def of_calls(self) -> str:
        """Return the first option that was passed; empty where none was."""
        layouts = {"target": self.target_layout, "golden": self.golden_layout}
        return next((f"--msprobe-{side}-layout" for side, layout in layouts.items() if layout), "")
