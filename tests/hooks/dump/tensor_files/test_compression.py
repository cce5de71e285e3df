"""A tensor's elements as a frame: what goes in comes out, and of a damaged or lying one nothing does."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from msprobe_hooks.dump.containers import FrameError, compressed, decompressed

ITEM_SIZES = st.sampled_from([1, 2, 4, 8, 16])


def frame_of(content: bytes, item_size: int = 1) -> NDArray[np.uint8]:
    frame = compressed(memoryview(content), item_size)
    assert frame is not None
    return np.frombuffer(frame, np.uint8)


def written(content: bytes, **parameters: Any) -> NDArray[np.uint8]:
    """Return a frame as another program may have written it."""
    return np.frombuffer(zstandard.ZstdCompressor(**parameters).compress(content), np.uint8)


@given(ITEM_SIZES, st.integers(64, 4000), st.integers(0, 255), st.integers(0, 2**32 - 1))
def test_elements_come_back_bit_by_bit(item_size: int, count: int, spread: int, seed: int) -> None:
    content = np.random.default_rng(seed).integers(0, spread, (count, item_size), np.uint8, endpoint=True).tobytes()
    frame = compressed(memoryview(content), item_size)
    assume(frame is not None)
    assert frame is not None
    assert len(frame) < len(content)
    found = decompressed(np.frombuffer(frame, np.uint8), item_size, len(content))
    assert found.tobytes() == content
    assert found.flags.writeable


@pytest.mark.parametrize("content", [np.random.default_rng(0).bytes(4096), bytes(1000), b""])
def test_what_would_hardly_be_smaller_is_left_as_it_is(content: bytes) -> None:
    assert compressed(memoryview(content), 4) is None


def test_bytes_lie_by_significance_in_a_plain_frame() -> None:
    content = np.arange(1024, dtype="<u2").tobytes()
    found = zstandard.ZstdDecompressor().decompress(frame_of(content, 2).tobytes())
    assert found == content[::2] + content[1::2]


def test_exponents_are_made_small_and_mantissas_are_left() -> None:
    content = np.random.default_rng(0).normal(size=2**16).astype(np.float32).tobytes()
    assert 0.7 < len(frame_of(content, 4)) / len(content) < 0.85


@given(st.data())
def test_a_damaged_frame_is_refused_or_says_the_same(data: st.DataObject) -> None:
    content = np.arange(3000, dtype="<f4").tobytes()
    frame = bytearray(frame_of(content, 4).tobytes())
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    with suppress(FrameError):
        assert decompressed(np.frombuffer(frame, np.uint8), 4, len(content)).tobytes() == content


@given(st.integers(0, 10_000))
def test_a_frame_that_was_cut_off_is_refused_wherever_it_was(kept: int) -> None:
    content = np.arange(3000, dtype="<f4").tobytes()
    frame = frame_of(content, 4)
    assume(kept < len(frame))
    with pytest.raises(FrameError):
        decompressed(frame[:kept], 4, len(content))


@pytest.mark.parametrize(
    "frame",
    [
        written(bytes(5000)),
        written(bytes(4096), compression_params=zstandard.ZstdCompressionParameters(write_content_size=False)),
        np.concatenate([written(bytes(4096)), written(b"more")]),
        np.concatenate([written(bytes(4096)), np.zeros(1, np.uint8)]),
        np.zeros(0, np.uint8),
        np.frombuffer(b"PK\3\4 no frame at all", np.uint8),
    ],
    ids=["another size", "no size", "two frames", "a byte more", "nothing", "no frame"],
)
def test_what_is_no_frame_of_these_elements_is_refused(frame: NDArray[np.uint8]) -> None:
    with pytest.raises(FrameError):
        decompressed(frame, 4, 4096)


def test_a_frame_that_claims_more_than_it_can_hold_takes_no_memory() -> None:
    size = 2**40
    beginning = zstandard.ZstdCompressor().compressobj(size=size)
    frame = beginning.compress(bytes(100)) + beginning.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    assert zstandard.frame_content_size(frame) == size
    tracemalloc.start()
    try:
        with pytest.raises(FrameError, match=f"they declare {size}"):
            decompressed(np.frombuffer(frame, np.uint8), 4, size)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
