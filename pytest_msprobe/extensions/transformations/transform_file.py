"""Files of ``--msprobe-transform``: a list of entries, or msprobe's own configuration of matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from pytest_msprobe.errors import OptionError, unknown
from pytest_msprobe.extensions.transformations.axes import Permute, Reshape, Slice, Transpose
from pytest_msprobe.extensions.transformations.block_orders import (
    BlockOrder,
    Product,
    QkvOrder,
    RotaryPairs,
    read_msprobe_matrices,
)
from pytest_msprobe.extensions.transformations.entries import Entry, NamePattern
from pytest_msprobe.extensions.transformations.step import (
    SIDES,
    Dequantisation,
    Scaling,
    Side,
    Step,
    choice,
    fields,
    integer_range,
)
from pytest_msprobe.extensions.transformations.transformations import Transformations
from pytest_msprobe.yaml_with_lines import Part, read_document

_EXAMPLE = "- {match: Module.*.output.0, side: golden, steps: [{rotate: {by: Q.npy}}]}"
_KEYS = ("match", "side", "steps", "precision", "each")
PRECISIONS: Final = ("float8", "bfloat16", "float16", "float32", "float64")

#: What reads each step, by its name in a file.
STEPS: Final[Mapping[str, Callable[[Part], Step]]] = {
    "rotate": Product.of_rotation,
    "multiply": Product.of_any,
    "dequantise": Dequantisation.read,
    "scale": Scaling.read,
    "transpose": Transpose.read,
    "permute": Permute.read,
    "reshape": Reshape.read,
    "slice": Slice.read,
    "reorder": BlockOrder.read,
    "rotary": RotaryPairs.read,
    "qkv": QkvOrder.read,
}


def read_transformations(path: Path) -> Transformations:
    """Read a file of transformations with the arrays that it names.

    Raises OptionError that names file, line, problem and remedy.
    """
    document = read_document(path, _EXAMPLE)
    if document.is_mapping:
        return Transformations(tuple(read_msprobe_matrices(document)))
    if not document.is_list:
        raise OptionError("not a list of entries", file=document.place, remedy=f"an entry looks like  {_EXAMPLE}")
    return Transformations(tuple(entry for part in document.members() for entry in _entries(part)))


def _entries(part: Part) -> Iterator[Entry]:
    """Yield the entry of a part, or one for each number of its key ``each``."""
    numbered = fields(part, _KEYS).get("each")
    if numbered is None:
        yield _entry(part)
        return
    names = list(numbered.items("not a word and its numbers, such as  {layer: 0-31}"))
    if len(names) != 1:
        raise numbered.refuse("not one word and its numbers, such as  {layer: 0-31}")
    word, _, numbers = names[0]
    for number in integer_range(numbers):
        yield _entry(part.with_text(f"<{word}>", str(number)))


def _entry(part: Part) -> Entry:
    keys = fields(part, _KEYS, required=("match", "side", "steps"))
    steps = keys["steps"]
    if not steps.is_list or not steps.members():
        raise steps.refuse("steps is not a list of steps")
    return Entry(
        NamePattern(keys["match"].text("a pattern of names of values")),
        cast("Side", choice(keys["side"], SIDES)),
        tuple(map(_step, steps.members())),
        part.place,
        choice(keys["precision"], PRECISIONS) if "precision" in keys else None,
    )


def _step(part: Part) -> Step:
    named = list(part.items("not a step, such as  rotate: {by: Q.npy}"))
    if len(named) != 1:
        raise part.refuse("each step is a list item of its own, with its name as its only key")
    name, key, value = named[0]
    if name not in STEPS:
        raise key.refuse(unknown("step", name, STEPS))
    return STEPS[name](value)
