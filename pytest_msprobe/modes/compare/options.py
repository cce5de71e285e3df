"""What a comparison needs in addition to the dumps: the golden run, and how calls are matched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pytest_msprobe.errors import OptionError, no_effect
from pytest_msprobe.modes.compare.registry import ComparisonRegistry, Layout, PartOptions
from pytest_msprobe.run.shared_options import GOLDEN, golden_path, html_file, xlsx_folder
from pytest_msprobe.storage.naming import fingerprint

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """How two runs are compared; ``golden`` is a ``dump.json`` or a folder of them.

    The layouts say how ranks hold one model together and become one run, None for ranks that are compared each.
    ``xlsx`` is the folder of workbooks, ``html`` the page, None for none. ``parts`` are the options of extensions.
    """

    golden: Path
    fuzzy: bool
    mapping: Path | None
    quick: bool
    xlsx: Path | None = None
    html: Path | None = None
    target_layout: Layout | None = None
    golden_layout: Layout | None = None
    parts: tuple[PartOptions, ...] = ()

    def part(self, kind: type[Part]) -> Part:
        """Return the options of an extension by their class, which has defaults where none were read."""
        return next((part for part in self.parts if isinstance(part, kind)), None) or kind()

    @property
    def of_calls(self) -> str:
        """The first option that was passed and says how calls are matched; empty where none was."""
        given = {
            "--msprobe-fuzzy": self.fuzzy,
            "--msprobe-data-mapping": self.mapping,
            "--msprobe-compare-quick": self.quick,
            "--msprobe-target-layout": self.target_layout,
            "--msprobe-golden-layout": self.golden_layout,
        }
        own = next((option for option, value in given.items() if value), "")
        return own or next((part.of_calls for part in self.parts if part.of_calls), "")

    @property
    def are_merged(self) -> bool:
        """Whether either run is merged of several ranks."""
        return self.target_layout is not None or self.golden_layout is not None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        words = [GOLDEN, str(self.golden)]
        for side, layout in (("target", self.target_layout), ("golden", self.golden_layout)):
            words += [f"--msprobe-{side}-layout", str(layout)] if layout else []
        words += ["--msprobe-fuzzy"] if self.fuzzy else []
        words += ["--msprobe-data-mapping", str(self.mapping)] if self.mapping else []
        return words + [word for part in self.parts for word in part.words()]

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        return {
            "fuzzy": str(self.fuzzy),
            "data_mapping": fingerprint(self.mapping) if self.mapping else "none",
            "quick": str(self.quick),
            "target_layout": str(self.target_layout),
            "golden_layout": str(self.golden_layout),
            **{name: value for part in self.parts for name, value in part.settings().items()},
        }


compare_key = pytest.StashKey[CompareOptions]()


def add_options(group: Any) -> None:
    """Add the options of a comparison, and those of its parts."""
    add, registry = group.addoption, ComparisonRegistry()
    if registry.merged_runs is not None:
        registry.merged_runs.add_options(group)
    add("--msprobe-fuzzy", action="store_true", help="match calls by API and structure, and ignore their numbers")
    add("--msprobe-data-mapping", metavar="FILE", help="YAML file that maps values of the target run to golden values")
    add(
        "--msprobe-compare-quick",
        action="store_true",
        help="only report whether the runs are equal and, if not, the first difference",
    )
    for source in registry.options.values():
        source.add_options(group)


def read_options(config: pytest.Config, registry: ComparisonRegistry) -> CompareOptions:
    """Read and check the options of a comparison. Raises OptionError that says what is wrong."""
    folder = config.invocation_params.dir
    golden = golden_path(config, "--msprobe-compare", "run")
    mapping = config.getoption("msprobe_data_mapping")
    if mapping and not (folder / mapping).is_file():
        raise OptionError(f"--msprobe-data-mapping {mapping!r}: no such file")
    merged = registry.merged_runs
    target_layout, golden_layout = (None, None) if merged is None else merged.read_layouts(config)
    return CompareOptions(
        golden=golden,
        fuzzy=bool(config.getoption("msprobe_fuzzy")),
        mapping=folder / mapping if mapping else None,
        quick=bool(config.getoption("msprobe_compare_quick")),
        xlsx=xlsx_folder(config),
        html=html_file(config),
        target_layout=target_layout,
        golden_layout=golden_layout,
        parts=tuple(source.read_options(config) for source in registry.options.values()),
    )


def refuse_without_target(config: pytest.Config) -> None:
    """Raise OptionError where an option of a comparison is passed without one."""
    registry = ComparisonRegistry()
    found = [name for name in ("fuzzy", "data_mapping", "compare_quick") if config.getoption(f"msprobe_{name}")]
    found += registry.merged_runs.passed(config) if registry.merged_runs is not None else []
    for name in (*found, *(name for source in registry.options.values() for name in source.passed(config))):
        raise no_effect(f"--msprobe-{name.replace('_', '-')}", "--msprobe-compare PATH")
