"""The names of calls and layers of one run in the other, as mapping files have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_msprobe.modes.compare.options import PartOptions
from pytest_msprobe.run.shared_options import MAPPING

if TYPE_CHECKING:
    from pytest_msprobe.yaml_with_lines import Section


@dataclass(frozen=True, slots=True)
class AcrossOptions(PartOptions):
    """Names across frameworks. ``wants_apis`` and ``wants_cells``: whether there are any, own or built in."""

    apis: Section | None = None
    cells: Section | None = None
    layers: Section | None = None
    wants_apis: bool = False
    wants_cells: bool = False

    @property
    def of_calls(self) -> str:
        """Return the first kind of names that was passed; empty where none was."""
        kinds = {"api": self.wants_apis, "cell": self.wants_cells, "layer": self.layers}
        return next((f"{MAPPING} with {kind}" for kind, value in kinds.items() if value), "")

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        from pytest_msprobe.storage.files import fingerprint

        sections = {"api_mapping": self.apis, "cell_mapping": self.cells, "layer_mapping": self.layers}
        return {name: fingerprint(section.path) for name, section in sections.items() if section}

    def with_mappings(self, sections: Mapping[str, list[Section | None]]) -> AcrossOptions:
        """Return what the sections of mapping files map."""
        (apis,), (cells,), (layers,) = (sections.get(kind, [None]) for kind in ("api", "cell", "layer"))
        return AcrossOptions(apis, cells, layers, wants_apis="api" in sections, wants_cells="cell" in sections)
