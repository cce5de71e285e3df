"""Checksums of a tensor's contiguous bytes: CRC-32 (which msprobe calls md5) and a 64-bit XOR."""

from __future__ import annotations

import queue
import sys
import threading
import zlib
from typing import TypeAlias

import numpy as np

from msprobe_hooks.recording.tensor_entry import Statistics

# Up to this many bytes it costs less to take the checksum than to hand them to a thread. python-isal's CRC-32, by the
# processor's carry-less multiplication, is as fast as memory is read.
try:
    from isal import isal_zlib

    crc32_number = isal_zlib.crc32
    _AT_ONCE_BYTES = sys.maxsize
except ImportError:
    crc32_number = zlib.crc32
    _AT_ONCE_BYTES = 16 * 2**10

# A choice: what copies may take of the host's memory while they wait, beyond which the training takes checksums itself.
_WAITING_BYTES = 256 * 2**20

Bytes: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]


def crc32(raw: Bytes) -> str:
    """Return the CRC-32 as 8 hexadecimal digits."""
    return f"{crc32_number(raw.data):08x}"


def xor64(raw: Bytes) -> str:
    """Return the bytes, zero-padded to a multiple of 8, folded as 64-bit words by XOR, as ``0x`` and 16 digits."""
    padded = np.pad(raw, (0, -raw.size % 8))
    return f"0x{int(np.bitwise_xor.reduce(padded.view(np.uint64))):016x}"


class ChecksumThread:
    """CRC-32s that are computed while the program goes on; zlib holds no lock of Python's meanwhile.

    It is for bytes that came from a device: they are a copy already, and the host is idle. Next to a program that
    computes on the host, copies and the changes between threads cost more than they save. Nothing is waited for but by
    ``wait``: where few bytes are given, or too many wait, the checksum is taken at once.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Bytes, Statistics] | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        # Each is written by one thread alone.
        self._given_bytes = 0
        self._done_bytes = 0

    def take(self, raw: Bytes, statistics: Statistics) -> None:
        """Set ``statistics.checksum``: now, or by the time that ``wait`` returns, where it then ``is_waiting``.

        These bytes must not be overwritten any more.
        """
        size = raw.nbytes
        if size <= _AT_ONCE_BYTES or self._given_bytes - self._done_bytes + size > _WAITING_BYTES:
            statistics.checksum = crc32(raw)
            return
        statistics.is_waiting = True
        self._given_bytes += size
        self._queue.put((raw, statistics))
        if self._thread is None:
            self._thread = threading.Thread(target=self._take_all, name="msprobe checksums", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        """Wait until all checksums are there."""
        if self._thread is not None and self._given_bytes != self._done_bytes:
            done = threading.Event()
            self._queue.put(done)
            done.wait()

    def check(self) -> None:
        """Raise what a checksum failed with since the last time, as for want of memory; that one is missing."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """End the thread when all checksums are there."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _take_all(self) -> None:
        while (job := self._queue.get()) is not None:
            if isinstance(job, threading.Event):
                job.set()
                continue
            raw, statistics = job
            try:
                statistics.checksum = crc32(raw)
            except Exception as error:
                # The program waits for this thread.
                self._failure = error
            self._done_bytes += raw.nbytes
            # The bytes are not kept until the next ones come.
            del job, raw
