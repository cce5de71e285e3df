"""Options of a comparison: the golden run, and how calls are matched."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions, across_options
from pytest_msprobe.extensions.inference.options import InferenceOptions
from pytest_msprobe.run import option_fields
from pytest_msprobe.run.option_fields import existing, existing_file, option, read_fields, setting, shared
from pytest_msprobe.run.shared_options import GOLDEN, MAPPING, golden_path, html_file, xlsx_folder

if TYPE_CHECKING:
    from msprobe_hooks.extensions.merged_ranks.merged_dump import ParallelLayout
    from pytest_msprobe.yaml_with_lines import Section


def _layout(config: pytest.Config, name: str, text: str) -> ParallelLayout:
    from pytest_msprobe.modes.compare.merged_ranks import parse_layout

    return parse_layout(name, text, config.invocation_params.dir)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How two runs are compared; ``golden`` is a ``dump.json`` or a folder of them.

    The layouts say how ranks hold one model together and become one run, None for ranks that are compared each.
    ``mappings`` are the mapping files, ``mapping`` that part of them which maps values. ``xlsx`` is the folder of
    workbooks, ``html`` the page, None for none. ``transform`` is the file of transformations.
    """

    golden: Path = shared(GOLDEN, read=existing)
    target_layout: ParallelLayout | None = option(
        "--msprobe-target-layout",
        "parallel layout of the target run, whose ranks are merged into one model: tp=2,pp=2[,vpp=2][,order=...] or a "
        "YAML file",
        metavar="LAYOUT",
        read=_layout,
    )
    golden_layout: ParallelLayout | None = option(
        "--msprobe-golden-layout",
        "parallel layout of the golden run, whose ranks are merged into one model: tp=2,pp=2[,vpp=2][,order=...] or a "
        "YAML file",
        metavar="LAYOUT",
        read=_layout,
    )
    fuzzy: bool = setting(
        "msprobe_fuzzy",
        "match calls by API and structure, and ignore their numbers (default: false)",
        kind="bool",
    )
    quick: bool = setting(
        "msprobe_compare_quick",
        "only report whether the runs are equal and, if not, the first difference (default: false)",
        kind="bool",
        rerun=False,
    )
    mappings: tuple[Path, ...] = shared(MAPPING, read=existing_file, repeat=True)
    transform: Path | None = option(
        "--msprobe-transform",
        "YAML file of transformations (rotate, dequantise, permute ...) that turn values of one run before they are "
        "compared",
        metavar="FILE",
        read=existing_file,
    )
    mapping: Section | None = None
    xlsx: Path | None = None
    html: Path | None = None
    across: AcrossOptions = field(default_factory=AcrossOptions)
    inference: InferenceOptions = field(default_factory=InferenceOptions)

    @property
    def of_calls(self) -> str:
        """The first option that was passed and says how calls are matched; empty where none was."""
        across = self.across
        given = {
            "msprobe_fuzzy": self.fuzzy,
            f"{MAPPING} with data": self.mapping,
            "msprobe_compare_quick": self.quick,
            "--msprobe-target-layout": self.target_layout,
            "--msprobe-golden-layout": self.golden_layout,
            f"{MAPPING} with api": across.wants_apis,
            f"{MAPPING} with cell": across.wants_cells,
            f"{MAPPING} with layer": across.layers,
            "--msprobe-transform": self.transform,
        }
        return next((option for option, value in given.items() if value), "")

    @property
    def are_merged(self) -> bool:
        """Return whether either run is merged of several ranks."""
        return self.target_layout is not None or self.golden_layout is not None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        return option_fields.words(self) + option_fields.words(self.inference)

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        from pytest_msprobe.storage.naming import fingerprint

        return {
            "fuzzy": str(self.fuzzy),
            "data_mapping": fingerprint(self.mapping.path) if self.mapping else "none",
            "quick": str(self.quick),
            "target_layout": str(self.target_layout),
            "golden_layout": str(self.golden_layout),
            "transform": fingerprint(self.transform) if self.transform else "none",
            **self.across.settings(),
            **self.inference.settings(),
        }


compare_key = pytest.StashKey[CompareOptions]()


def add_options(group: pytest.OptionGroup) -> None:
    """Add the options of a comparison."""
    option_fields.add_fields(group, CompareOptions)
    option_fields.add_fields(group, InferenceOptions)


def read_options(config: pytest.Config) -> CompareOptions:
    """Read and check the options of a comparison. Raises OptionError that says what is wrong."""
    golden_path(config, "--msprobe-compare", "run")
    inference = read_fields(config, InferenceOptions)
    options = read_fields(config, CompareOptions, xlsx=xlsx_folder(config), html=html_file(config), inference=inference)
    return with_mappings(options, options.mappings)


def with_mappings(options: CompareOptions, files: Collection[Path]) -> CompareOptions:
    """Return the options with what mapping files map. Raises OptionError that names file, line and problem."""
    if not files:
        return options
    from pytest_msprobe.run.mapping_files import sections_in

    sections = sections_in(files)
    names = tuple(section for section in sections.get("model_names", ()) if section is not None)
    return replace(
        options,
        mappings=tuple(files),
        mapping=sections.get("data", [None])[0],
        across=across_options(sections),
        inference=replace(options.inference, names=names),
    )


def refuse_without_target(config: pytest.Config) -> None:
    """Raise OptionError where an option of a comparison is passed without one."""
    for options in (CompareOptions, InferenceOptions):
        option_fields.refuse_without(config, options, "--msprobe-compare PATH")
