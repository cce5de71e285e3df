"""Arrays written as ``.npy`` files on disks that may be full."""

from __future__ import annotations

from types import SimpleNamespace
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


def write_npy(file: IO[bytes], array: NDArray[Any]) -> None:
    """Write an array, part by part. Raises OSError where the disk refuses.

    Given the file itself, numpy writes past Python and does not notice that the last part finds no room.
    """
    np.save(SimpleNamespace(write=file.write), array, allow_pickle=False)
