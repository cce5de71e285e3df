"""Heat maps of a tensor's elements from step to step, in msprobe's format."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: The bins of a distribution and their range; elements beyond it are in none.
BINS: Final = 30
RANGE: Final = (-1.0, 1.0)

# So many of the latest steps are shown, which bounds memory and the size of events.
_STEPS_SHOWN = 256
_HEIGHT_OF_BIN = 8
_WIDTH = 512
_WIDEST_STEP = 16

# matplotlib's colours "hot": red, green and blue rise from 0 to 1 one after the other, red from 0.0416 at 0.
_ENDS = np.array([0.0, 0.365079, 0.746032, 1.0])
_LEAST_RED = 0.0416


class HeatMap:
    """A column for each step, a row for each bin, the lowest on top.

    Empty bins are black, each step's fullest is white: Adam's first step, with all elements in two bins, would else
    leave the others dark.
    """

    def __init__(self) -> None:
        self._columns: deque[NDArray[np.float32]] = deque(maxlen=_STEPS_SHOWN)

    def add(self, counts: Sequence[float]) -> None:
        """Take the next step: how many elements are in each of the `BINS`."""
        self._columns.append(np.asarray(counts, np.float32))

    def image(self) -> NDArray[np.uint8]:
        """Return the picture, of shape (height, width, 3)."""
        counts = np.stack(self._columns, axis=1)
        shares = counts / np.maximum(counts.max(axis=0), 1.0)
        ramps = np.clip((shares[..., None] - _ENDS[:-1]) / np.diff(_ENDS), 0, 1)
        ramps[..., 0] = _LEAST_RED + (1 - _LEAST_RED) * ramps[..., 0]
        pixels: NDArray[np.uint8] = np.rint(255 * ramps).astype(np.uint8)
        width = min(max(_WIDTH // counts.shape[1], 1), _WIDEST_STEP)
        return pixels.repeat(_HEIGHT_OF_BIN, axis=0).repeat(width, axis=1)
