"""Options of a comparison: the golden run, and how calls are matched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_msprobe.errors import OptionError, no_effect
from pytest_msprobe.extensions.across_frameworks import options as across
from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions
from pytest_msprobe.extensions.graphs.vis import options as vis_options
from pytest_msprobe.extensions.graphs.vis.options import VisOptions
from pytest_msprobe.extensions.inference import options as inference
from pytest_msprobe.extensions.inference.options import InferenceOptions
from pytest_msprobe.run.shared_options import GOLDEN, golden_path, html_file, xlsx_folder
from pytest_msprobe.storage.naming import fingerprint

if TYPE_CHECKING:
    from msprobe_hooks.extensions.merged_ranks.merged_dump import ParallelLayout


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How two runs are compared; ``golden`` is a ``dump.json`` or a folder of them.

    The layouts say how ranks hold one model together and become one run, None for ranks that are compared each.
    ``xlsx`` is the folder of workbooks, ``html`` the page, ``vis`` where graphs go, None for none.
    ``transform`` is the file of transformations.
    """

    golden: Path
    fuzzy: bool
    mapping: Path | None
    quick: bool
    xlsx: Path | None = None
    html: Path | None = None
    vis: VisOptions | None = None
    across: AcrossOptions = field(default_factory=AcrossOptions)
    target_layout: ParallelLayout | None = None
    golden_layout: ParallelLayout | None = None
    inference: InferenceOptions = field(default_factory=InferenceOptions)
    transform: Path | None = None

    @property
    def of_calls(self) -> str:
        """The first option that was passed and says how calls are matched; empty where none was."""
        across = self.across
        given = {
            "--msprobe-fuzzy": self.fuzzy,
            "--msprobe-data-mapping": self.mapping,
            "--msprobe-compare-quick": self.quick,
            "--msprobe-target-layout": self.target_layout,
            "--msprobe-golden-layout": self.golden_layout,
            "--msprobe-api-mapping": across.wants_apis,
            "--msprobe-cell-mapping": across.wants_cells,
            "--msprobe-layer-mapping": across.layers,
            "--msprobe-vis": self.vis,
            "--msprobe-transform": self.transform,
        }
        return next((option for option, value in given.items() if value), "")

    @property
    def are_merged(self) -> bool:
        """Return whether either run is merged of several ranks."""
        return self.target_layout is not None or self.golden_layout is not None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        words = [GOLDEN, str(self.golden)]
        for side, layout in (("target", self.target_layout), ("golden", self.golden_layout)):
            words += [f"--msprobe-{side}-layout", str(layout)] if layout else []
        words += ["--msprobe-fuzzy"] if self.fuzzy else []
        words += ["--msprobe-data-mapping", str(self.mapping)] if self.mapping else []
        words += ["--msprobe-transform", str(self.transform)] if self.transform else []
        return words + self.across.words() + self.inference.words()

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        return {
            "fuzzy": str(self.fuzzy),
            "data_mapping": fingerprint(self.mapping) if self.mapping else "none",
            "quick": str(self.quick),
            "target_layout": str(self.target_layout),
            "golden_layout": str(self.golden_layout),
            "transform": fingerprint(self.transform) if self.transform else "none",
            **self.across.settings(),
            **self.inference.settings(),
        }


compare_key = pytest.StashKey[CompareOptions]()


def add_options(group: Any) -> None:
    """Add the options of a comparison."""
    add = group.addoption
    for side in ("target", "golden"):
        add(
            f"--msprobe-{side}-layout",
            metavar="LAYOUT",
            help=f"parallel layout of the {side} run, whose ranks are merged into one model: "
            "tp=2,pp=2[,vpp=2][,order=...] or a YAML file",
        )
    add("--msprobe-fuzzy", action="store_true", help="match calls by API and structure, and ignore their numbers")
    add("--msprobe-data-mapping", metavar="FILE", help="YAML file that maps values of the target run to golden values")
    add(
        "--msprobe-compare-quick",
        action="store_true",
        help="only report whether the runs are equal and, if not, the first difference",
    )
    add(
        "--msprobe-transform",
        metavar="FILE",
        help="YAML file of transformations (rotate, dequantise, permute ...) that turn values of one run before they "
        "are compared",
    )
    across.add_options(group)
    inference.add_options(group)


def read_options(config: pytest.Config) -> CompareOptions:
    """Read and check the options of a comparison. Raises OptionError that says what is wrong."""
    folder = config.invocation_params.dir
    golden = golden_path(config, "--msprobe-compare", "run")
    mapping, transform = config.getoption("msprobe_data_mapping"), config.getoption("msprobe_transform")
    for name, text in (("data-mapping", mapping), ("transform", transform)):
        if text and not (folder / text).is_file():
            raise OptionError(f"--msprobe-{name} {text!r}: no such file")
    return CompareOptions(
        golden=golden,
        fuzzy=bool(config.getoption("msprobe_fuzzy")),
        mapping=folder / mapping if mapping else None,
        quick=bool(config.getoption("msprobe_compare_quick")),
        xlsx=xlsx_folder(config),
        html=html_file(config),
        vis=vis_options.read_options(config),
        across=across.read_options(config),
        target_layout=_layout(config, "target"),
        golden_layout=_layout(config, "golden"),
        inference=inference.read_options(config),
        transform=folder / transform if transform else None,
    )


def _layout(config: pytest.Config, side: str) -> ParallelLayout | None:
    text = config.getoption(f"msprobe_{side}_layout")
    if not text:
        return None
    from pytest_msprobe.modes.compare.merged_ranks import parse_layout

    return parse_layout(f"--msprobe-{side}-layout", text, config.invocation_params.dir)


def refuse_without_target(config: pytest.Config) -> None:
    """Raise OptionError where an option of a comparison is passed without one."""
    own = ("target_layout", "golden_layout", "fuzzy", "data_mapping", "compare_quick", "transform")
    found = [*(name for name in own if config.getoption(f"msprobe_{name}")), *across.passed(config)]
    for name in (*found, *inference.passed(config)):
        raise no_effect(f"--msprobe-{name.replace('_', '-')}", "--msprobe-compare PATH")
