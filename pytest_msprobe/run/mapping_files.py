"""Mapping files, whose keys say what they map.

A key holds names in the form of its kind, or the path of a file of that form, relative to the mapping file:

    api: [{ms_api: mint.add, pt_api: torch.add, ...}]    # or: api: apis.yaml, or: api: built-in
    model_names: names/own.yaml
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pytest_msprobe.errors import OptionError, not_one_of
from pytest_msprobe.run.shared_options import MAPPING
from pytest_msprobe.yaml_with_lines import Section, read_document

API, CELL, LAYER, DATA, MODEL_NAMES = KINDS = ("api", "cell", "layer", "data", "model_names")
#: The text in place of names that asks for the table that ships.
BUILT_IN = "built-in"
_SHIPPED = (API, CELL)


def sections_in(files: Iterable[Path]) -> Mapping[str, list[Section | None]]:
    """Return where the names of each kind are, in the order of the files; None means the built-in table.

    Raises OptionError that names file, line and problem.
    """
    sections: dict[str, list[Section | None]] = {}
    for path in files:
        for kind, section in _sections_of(path):
            if kind != MODEL_NAMES and kind in sections:
                raise OptionError(f"{MAPPING} has the key {kind} twice", file=path, remedy="merge both into one file")
            sections.setdefault(kind, []).append(section)
    return sections


def _sections_of(path: Path) -> list[tuple[str, Section | None]]:
    sections: list[tuple[str, Section | None]] = []
    for kind, key, part in read_document(path, "data: names.yaml").items(f"expected keys such as {', '.join(KINDS)}"):
        if kind not in KINDS:
            raise key.refuse(f"{kind!r} is {not_one_of(kind, KINDS)}: names stand below the key of their kind")
        if not part.is_text:
            sections.append((kind, Section(path, kind)))
        elif part.text("a file") == BUILT_IN and kind in _SHIPPED:
            sections.append((kind, None))
        else:
            file = path.parent / part.text("a file of names")
            if not file.is_file():
                raise part.refuse(f"{kind}: no such file: {file}")
            sections.append((kind, Section(file)))
    return sections
