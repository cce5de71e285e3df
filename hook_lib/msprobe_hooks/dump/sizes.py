"""How much a record is about, told from its undecoded text."""

from __future__ import annotations

import math
import re

_SHAPE = re.compile(rb'"shape": ?\[([\d,\s]*)\]')


def recorded_elements(record: bytes) -> float:
    """Return the number of elements of all tensors of an undecoded record."""
    return sum(_elements(match[1]) for match in _SHAPE.finditer(record))


def _elements(shape: bytes) -> float:
    # As floats, which also hold the product of sizes that no tensor has.
    sizes = [float(size) for size in shape.split(b",") if size.strip()]
    return 0.0 if 0 in sizes else math.prod(sizes)
