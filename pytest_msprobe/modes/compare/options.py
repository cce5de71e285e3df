"""Options of a comparison: the golden run, how calls are matched, and the options of its parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

from pytest_msprobe.run import option_fields
from pytest_msprobe.run.option_fields import existing, existing_file, read_fields, setting, shared
from pytest_msprobe.run.shared_options import GOLDEN, MAPPING, golden_path, html_file, xlsx_folder

if TYPE_CHECKING:
    from typing_extensions import Self

    from pytest_msprobe.modes.compare.runs import Layout
    from pytest_msprobe.yaml_with_lines import Section


class PartOptions:
    """Options of a part; a subclass is a frozen dataclass whose fields are declared as `run.option_fields` has them."""

    __slots__ = ()

    @property
    def of_calls(self) -> str:
        """Return the first option that was passed and says how calls are matched; empty where none was."""
        return ""

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        return option_fields.words(self)

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        return option_fields.settings(self)

    def with_mappings(self, sections: Mapping[str, list[Section | None]]) -> Self:
        """Return the options with what mapping files have of their kinds."""
        return self


Part = TypeVar("Part", bound=PartOptions)


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """Comparison of two runs; ``golden`` is a ``dump.json`` or a folder of them.

    ``mappings`` are the mapping files, ``mapping`` that part of them which maps values. ``xlsx`` is the folder of
    workbooks, ``html`` the page, None for none. ``parts`` are the options that extensions add.
    """

    golden: Path = shared(GOLDEN, read=existing)
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
    mapping: Section | None = None
    xlsx: Path | None = None
    html: Path | None = None
    parts: tuple[PartOptions, ...] = ()

    def part(self, kind: type[Part]) -> Part:
        """Return the options of a part by their class, with its defaults where none were read."""
        return next((part for part in self.parts if isinstance(part, kind)), None) or kind()

    @property
    def target_layout(self) -> Layout | None:
        """Return how ranks of the target become one run, None for ranks that are compared each."""
        return next((part.target_layout for part in self.parts if hasattr(part, "target_layout")), None)

    @property
    def golden_layout(self) -> Layout | None:
        """Return how ranks of the golden run become one, None for ranks that are compared each."""
        return next((part.golden_layout for part in self.parts if hasattr(part, "golden_layout")), None)

    @property
    def of_calls(self) -> str:
        """Return the first option that was passed and says how calls are matched; empty where none was."""
        options = {
            "msprobe_fuzzy": self.fuzzy,
            f"{MAPPING} with data": self.mapping,
            "msprobe_compare_quick": self.quick,
        }
        own = next((option for option, value in options.items() if value), "")
        return own or next((part.of_calls for part in self.parts if part.of_calls), "")

    @property
    def are_merged(self) -> bool:
        """Return whether either run is merged of several ranks."""
        return self.target_layout is not None or self.golden_layout is not None

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        return option_fields.words(self) + [word for part in self.parts for word in part.words()]

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        from pytest_msprobe.storage.files import fingerprint

        return {
            "fuzzy": str(self.fuzzy),
            "data_mapping": fingerprint(self.mapping.path) if self.mapping else "none",
            "quick": str(self.quick),
            **{name: value for part in self.parts for name, value in part.settings().items()},
        }


compare_key = pytest.StashKey[CompareOptions]()


def read_options(config: pytest.Config, parts: Collection[type[PartOptions]]) -> CompareOptions:
    """Read and check the options of a comparison. Raises OptionError that says what is wrong."""
    golden_path(config, "--msprobe-compare", "run")
    read = tuple(read_fields(config, part) for part in parts)
    options = read_fields(config, CompareOptions, xlsx=xlsx_folder(config), html=html_file(config), parts=read)
    return with_mappings(options, options.mappings)


def with_mappings(options: CompareOptions, files: Collection[Path]) -> CompareOptions:
    """Return the options with what mapping files map. Raises OptionError that names file, line and problem."""
    if not files:
        return options
    from pytest_msprobe.run.mapping_files import sections_in

    sections = sections_in(files)
    return replace(
        options,
        mappings=tuple(files),
        mapping=sections.get("data", [None])[0],
        parts=tuple(part.with_mappings(sections) for part in options.parts),
    )
