"""Messages and bytes over two pipes."""

from __future__ import annotations

import os
import struct
import threading
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.extensions.remote.messages import (
    LARGEST_FRAME,
    EndedError,
    Envelope,
    Frames,
    GarbageError,
    OutOfTimeError,
)


class Wire:
    """Frames at both ends of two pipes, and the near end's bare file descriptors."""

    def __init__(self) -> None:
        self.to_far, self.far_in = os.pipe()[::-1]
        self.near_in, self.to_near = os.pipe()
        self.near = Frames(self.near_in, self.to_far)
        self.far = Frames(self.far_in, self.to_near)

    def close(self) -> None:
        for pipe in {self.to_far, self.far_in, self.near_in, self.to_near}:
            try:
                os.close(pipe)
            except OSError:
                continue


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire()
    yield wire
    wire.close()


def soon() -> float:
    return time.monotonic() + 300


def frame(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">cI", kind, len(body)) + body


def envelope(*sizes: int) -> bytes:
    return frame(b"M", msgspec.msgpack.encode(Envelope(msgspec.Raw(b"\xc0"), sizes)))


@given(st.lists(st.binary(max_size=300), max_size=4), st.integers(0, 2**40))
def test_what_is_sent_arrives(blobs: list[bytes], number: int) -> None:
    wire = Wire()
    body = msgspec.msgpack.encode(number)
    wire.near.send(body, [memoryview(blob) for blob in blobs], seconds=3.0, until=soon())
    received, found = wire.far.receive(1200, until=soon())
    wire.close()
    assert (bytes(received.body), received.seconds, list(map(bytes, found))) == (body, 3.0, blobs)


def test_what_is_longer_than_a_frame_crosses_in_several(wire: Wire) -> None:
    blob = bytes(range(256)) * (LARGEST_FRAME // 256) + b"more"
    sending = threading.Thread(target=wire.far.send, args=(b"\xc0", [memoryview(blob)]))
    sending.start()
    _, found = wire.near.receive(len(blob), until=soon())
    sending.join()
    assert found == [blob]


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"Welcome to host!", "a frame b'W' of"),
        (frame(b"B", b"123"), "a frame b'B' of 3 bytes where b'M'"),
        (struct.pack(">cI", b"M", LARGEST_FRAME + 1), "where b'M' of at most 16777216"),
        (frame(b"M", b"\xc1"), "a message that cannot be read"),
        (frame(b"M", b"\x91" * 5000), "a message that cannot be read"),
        (envelope(101), "101 bytes of tensors where 100 are possible"),
        (envelope(-1), "-1 bytes of tensors"),
        (envelope(2**62, 2**62), "bytes of tensors where 100 are possible"),
        (envelope(4) + frame(b"B", b"12345"), "a frame b'B' of 5 bytes where b'B' of at most 4"),
        (envelope(4) + frame(b"B", b""), "a frame b'B' of 0 bytes"),
        (envelope(4) + envelope(), "a frame b'M'"),
    ],
)
def test_what_must_not_come_is_refused(wire: Wire, sent: bytes, problem: str) -> None:
    os.write(wire.to_near, sent)
    with pytest.raises(GarbageError) as error:
        wire.near.receive(100, until=soon())
    assert problem in str(error.value)


def test_an_end_that_is_silent_in_the_middle_of_a_frame_is_waited_for_no_longer_than_it_may_take(wire: Wire) -> None:
    os.write(wire.to_near, envelope(4)[:7])
    with pytest.raises(OutOfTimeError):
        wire.near.receive(100, until=time.monotonic() + 0.05)


def test_an_end_that_reads_nothing_is_waited_for_no_longer_than_it_may_take(wire: Wire) -> None:
    with pytest.raises(OutOfTimeError):
        wire.near.send(b"\xc0", [memoryview(bytes(2**21))], until=time.monotonic() + 0.05)


def test_an_end_that_closes_has_ended(wire: Wire) -> None:
    os.write(wire.to_near, envelope(4))
    os.close(wire.to_near)
    with pytest.raises(EndedError):
        wire.near.receive(100, until=soon())
    os.close(wire.far_in)
    with pytest.raises(EndedError):
        wire.near.send(b"\xc0", until=soon())


def test_what_stands_in_place_of_the_expected_words_is_quoted(wire: Wire) -> None:
    os.write(wire.to_near, b"pytest is not here")
    with pytest.raises(GarbageError, match="it printed b'pytest is not here'"):
        wire.near.expect(b"pytest-msprobe", until=soon())
