"""The configuration of msprobe 26.2's ``compare --config``: matrices by which listed tensors are multiplied.

``right_matmul`` and ``left_matmul`` hold ``target_tensor_map`` and ``golden_tensor_map``, each a mapping of a matrix's
file to the names of tensors' files; ``left_right_matmul`` has the four maps with ``left_`` and ``right_`` in front.
msprobe applies the three sections in this order, the left product of a section first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from pytest_msprobe.extensions.transformations.array_file import ArrayFile
from pytest_msprobe.extensions.transformations.rotation import Product
from pytest_msprobe.extensions.transformations.step_fields import fields
from pytest_msprobe.extensions.transformations.transformations import Entry, ListedNames
from pytest_msprobe.messages import unknown

if TYPE_CHECKING:
    from pytest_msprobe.extensions.transformations.step import Side
    from pytest_msprobe.yaml_with_lines import Part

_MAPS: Final[dict[str, Side]] = {"target_tensor_map": "target", "golden_tensor_map": "golden"}
_SECTIONS: Final = {
    "right_matmul": {name: (side, False) for name, side in _MAPS.items()},
    "left_matmul": {name: (side, True) for name, side in _MAPS.items()},
    "left_right_matmul": {
        f"{where}_{name}": (side, where == "left") for where in ("left", "right") for name, side in _MAPS.items()
    },
}


def read_msprobe_matrices(document: Part) -> Iterator[Entry]:
    """Yield the entries of a configuration in msprobe's order. Raises OptionError that names file and line."""
    sections = {name: (key, value) for name, key, value in document.items("not a mapping")}
    for name, (key, _) in sections.items():
        if name not in _SECTIONS:
            raise key.refuse(f"{unknown('section', name, _SECTIONS)}; a file of this project's own form is a list")
    for name, maps in _SECTIONS.items():
        if name in sections and not sections[name][1].is_empty:
            found = fields(sections[name][1], tuple(maps))
            for map_name, (side, is_left) in maps.items():
                if map_name in found and not found[map_name].is_empty:
                    yield from _entries(found[map_name], side, is_left=is_left)


def _entries(part: Part, side: Side, *, is_left: bool) -> Iterator[Entry]:
    for file, key, names in part.items("not a mapping of matrices to lists of names"):
        if not names.is_list:
            raise names.refuse("not a list of the names of tensors")
        product = Product(ArrayFile(part.path.parent / file, "", key.place), is_left=is_left).checked()
        listed = frozenset(member.text("the name of a tensor") for member in names.members())
        if listed:
            yield Entry(ListedNames(listed), side, (product,), key.place)
