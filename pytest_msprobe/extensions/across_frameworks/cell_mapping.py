"""Cell mapping: what MindSpore's cells are called in PyTorch, or modules of one run in the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msprobe_hooks.dump.names import is_module_name, split_called
from pytest_msprobe.extensions.across_frameworks.longest_prefix import LongestFirst
from pytest_msprobe.yaml_with_lines import read_document

_EXAMPLE = "fc2.Dense: fc2.Linear"


@dataclass(frozen=True)
class CellMapping:
    """``{path.Class of a cell: path.Class of the module}``; a key may be any run of whole words of a cell's name."""

    names: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _by_words(self) -> LongestFirst[list[str]]:
        return LongestFirst({tuple(key.split(".")): other.split(".") for key, other in self.names.items()})

    def translate(self, record: str, kind: str) -> str:
        """Return what the golden run calls a module's record, whose first word there is ``kind``."""
        called, rest = split_called(record)
        name = called.partition(".")[2]
        mapped = self.names.get(name)
        if mapped is None:
            mapped = ".".join(self._replaced(name.split(".")))
        return f"{kind}.{mapped}{rest}"

    def _replaced(self, words: list[str]) -> list[str]:
        """Replace the first run of words that a key names, the longest key first."""
        for i in range(len(words)):
            found = self._by_words.at(words, i)
            if found is not None:
                key, other = found
                return [*words[:i], *other, *words[i + len(key) :]]
        return words

    def without_effect(self, records: Iterable[str]) -> list[str]:
        """Return the keys that no module's record has, in the file's order."""
        names = {split_called(record)[0] for record in records if is_module_name(record)}
        found = {key for name in names for key in self._by_words.within(name.split(".")[1:])}
        return [key for key in self.names if tuple(key.split(".")) not in found]


def read_cells(path: Path) -> CellMapping:
    """Read a file. Raises OptionError that names file, line and remedy."""
    names: dict[str, str] = {}
    lines: dict[str, str] = {}
    document = read_document(path, _EXAMPLE)
    for key, part, value in document.items(f"not a cell mapping; it maps names of layers, as in  {_EXAMPLE}"):
        names[key] = value.text("a module's name and class such as fc2.Linear")
        lines[key] = part.place
    return CellMapping(names, lines)
