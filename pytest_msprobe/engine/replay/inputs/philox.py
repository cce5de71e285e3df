"""Random words by their place, and arrays filled from them in pieces, on as many threads as torch may use.

Philox computes a word from a key and the word's place alone (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011). So an element is the same whatever else is drawn, in which order and on how many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

#: Neighbouring elements that are drawn together, from a place that is a multiple of it.
GROUP = 1024

# So many groups at a time stay in the cache, and cost more than to set a generator to their place.
_PIECE = 64 * GROUP

_COUNTER_BITS = 256  # numpy's Philox gives four words of 64 bits for each count

#: Returns so many values of a flat array from a place on; both are multiples of `GROUP`.
Piece: TypeAlias = Callable[[int, int], npt.NDArray[Any]]


def words(seed: int, stream: int, place: int, count: int, bits: int) -> npt.NDArray[np.unsignedinteger]:
    """Return ``count`` random words of 8 to 64 bits, from a place in one of the streams of a seed on.

    Place and count are multiples of `GROUP`.
    """
    key = np.array([seed % 2**64, stream], dtype=np.uint64)
    philox = np.random.Philox(key=key, counter=place * bits // _COUNTER_BITS)
    raw: npt.NDArray[np.uint64] = philox.random_raw(count * bits // 64)
    return raw.view(f"u{bits // 8}")


def fill(array: npt.NDArray[Any], piece: Piece, groups: npt.NDArray[np.bool_] | None = None) -> None:
    """Fill a flat array with what ``piece`` gives, or those of its groups alone that are true in ``groups``."""
    spans = list(_spans([(0, array.size)] if groups is None else _runs(groups, array.size)))

    def write(some: Iterable[tuple[int, int]]) -> None:
        for start, stop in some:
            array[start:stop] = piece(start, -(-(stop - start) // GROUP) * GROUP)[: stop - start]

    threads = min(torch.get_num_threads(), len(spans))
    if threads <= 1:
        write(spans)
        return
    # Threads of its own, which end: those of a pool that stays would be missing in a forked child.
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, [spans[i::threads] for i in range(threads)]))


def _runs(groups: npt.NDArray[np.bool_], count: int) -> Iterator[tuple[int, int]]:
    """Yield where neighbouring groups that are true begin and end, as places among ``count`` elements."""
    edges = np.flatnonzero(np.diff(groups.astype(np.int8), prepend=0, append=0)) * GROUP
    for start, stop in edges.reshape(-1, 2).tolist():
        yield start, min(stop, count)


def _spans(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for start, stop in runs:
        for place in range(start, stop, _PIECE):
            yield place, min(place + _PIECE, stop)
