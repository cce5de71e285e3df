"""Messages and bytes over two pipes, bounded in size and time; both ends of a link have one of these."""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Sequence

import msgspec

from pytest_msprobe.extensions.remote.messages import Envelope

#: No frame is longer; what is longer crosses in several.
LARGEST_FRAME = 16 * 2**20

_HEADER = struct.Struct(">cI")
_MESSAGE, _BYTES = b"M", b"B"
_KEPT_OF_ERRORS = 4096


class BrokenPipesError(Exception):
    """Nothing more is to be had of the other end, or nothing that makes sense."""


class EndedError(BrokenPipesError):
    """The other end has ended."""


class OutOfTimeError(BrokenPipesError):
    """The other end took longer than it may."""


class GarbageError(BrokenPipesError):
    """The other end sent what it must not."""


class Frames:
    """What crosses two pipes; ``errors`` is one more, whose last words are kept in ``last_words``.

    Each message may be followed by the bytes of tensors, whose sizes it holds. Nothing is read that was not expected,
    and no more memory taken than was allowed.
    """

    def __init__(self, reading: int, writing: int, errors: int | None = None) -> None:
        self.last_words = b""
        self._reading = reading
        self._writing = writing
        self._errors = errors
        self._polls = {
            reading: self._poll_for(reading, select.POLLIN),
            writing: self._poll_for(writing, select.POLLOUT),
        }
        for pipe in (reading, writing, errors):
            if pipe is not None:
                os.set_blocking(pipe, False)

    def _poll_for(self, pipe: int, event: int) -> select.poll:
        poll = select.poll()
        poll.register(pipe, event)
        if self._errors is not None:
            poll.register(self._errors, select.POLLIN)
        return poll

    def send(
        self, body: bytes, blobs: Sequence[memoryview] = (), *, seconds: float = 0.0, until: float | None = None
    ) -> None:
        """Send a message and bytes. Raises EndedError, OutOfTimeError at ``until``, of the monotonic clock."""
        sizes = tuple(blob.nbytes for blob in blobs)
        message = msgspec.msgpack.encode(Envelope(msgspec.Raw(body), sizes, seconds))
        self._write(_HEADER.pack(_MESSAGE, len(message)) + message, until)
        for blob in blobs:
            for start in range(0, blob.nbytes, LARGEST_FRAME):
                part = blob[start : start + LARGEST_FRAME]
                self._write(_HEADER.pack(_BYTES, part.nbytes), until)
                self._write(part, until)

    def receive(self, limit: float, *, until: float | None = None) -> tuple[Envelope, list[bytearray]]:
        """Return the next message with its bytes, of which there may be ``limit``.

        Raises EndedError, OutOfTimeError at ``until``, and GarbageError for anything else than that.
        """
        message = self._read(self._header(_MESSAGE, LARGEST_FRAME, until), until)
        try:
            envelope = msgspec.msgpack.decode(message, type=Envelope)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise GarbageError(f"a message that cannot be read: {error}") from None
        if min(envelope.sizes, default=0) < 0 or sum(envelope.sizes) > limit:
            raise GarbageError(f"{sum(envelope.sizes)} bytes of tensors where {limit:.0f} are possible")
        return envelope, [self._blob(size, until) for size in envelope.sizes]

    def expect(self, words: bytes, *, until: float | None = None) -> None:
        """Read these words. Raises GarbageError that quotes what came in their place, else as `receive`."""
        found = bytearray()
        while len(found) < len(words):
            found += self._read(1, until)
            if not words.startswith(found):
                raise GarbageError(f"it printed {bytes(found + self._at_hand())!r:.200}")

    def _at_hand(self) -> bytes:
        try:
            return os.read(self._reading, 160)
        except OSError:
            return b""

    def _blob(self, size: int, until: float | None) -> bytearray:
        blob = bytearray(size)
        view, done = memoryview(blob), 0
        while done < size:
            length = self._header(_BYTES, min(LARGEST_FRAME, size - done), until)
            self._read_into(view[done : done + length], until)
            done += length
        return blob

    def _header(self, wanted: bytes, longest: int, until: float | None) -> int:
        kind, length = _HEADER.unpack(self._read(_HEADER.size, until))
        if kind != wanted or not 0 < length <= longest:
            raise GarbageError(f"a frame {kind!r} of {length} bytes where {wanted!r} of at most {longest} was due")
        return int(length)

    def _read(self, size: int, until: float | None) -> bytearray:
        found = bytearray(size)
        self._read_into(memoryview(found), until)
        return found

    def _read_into(self, view: memoryview, until: float | None) -> None:
        while view:
            self._wait_for(self._reading, until)
            try:
                count = os.readv(self._reading, [view])
            except BlockingIOError:
                continue
            except OSError as error:
                raise EndedError(str(error)) from None
            if not count:
                raise EndedError("it ended")
            view = view[count:]

    def _write(self, data: bytes | memoryview, until: float | None) -> None:
        view = memoryview(data)
        while view:
            self._wait_for(self._writing, until)
            try:
                view = view[os.write(self._writing, view) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise EndedError(str(error)) from None

    def _wait_for(self, pipe: int, until: float | None) -> None:
        """Wait until a pipe can be read or written, and hear meanwhile what the other end says of its errors."""
        while True:
            left = None if until is None else (until - time.monotonic()) * 1000
            if left is not None and left <= 0:
                raise OutOfTimeError("it took too long")
            ready = {number for number, _ in self._polls[pipe].poll(left)}
            if self._errors in ready:
                self.hear()
            if pipe in ready:
                return

    def hear(self) -> None:
        """Keep the last of what the other end has said of its errors."""
        if self._errors is None:
            return
        try:
            words = os.read(self._errors, 2**16)
        except BlockingIOError:
            return
        self.last_words = (self.last_words + words)[-_KEPT_OF_ERRORS:]
        if not words:
            for poll in self._polls.values():
                poll.unregister(self._errors)
            self._errors = None
