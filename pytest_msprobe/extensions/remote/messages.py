"""Messages between the ends of a link, and their frames: data without tensors, then bytes; nothing is unpickled."""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec

#: Raised by one whenever an end of an earlier version would not understand, or misunderstand, what is said here.
PROTOCOL = 3

#: What the process elsewhere says first, before any frame, so that nothing else can be taken for it.
HAIL = b"pytest-msprobe remote\n"


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message and what follows it: the sizes in bytes of its tensors. The other end gives up after ``seconds``."""

    body: msgspec.Raw
    sizes: tuple[int, ...] = ()
    seconds: float = 0.0


class TensorForm(msgspec.Struct, frozen=True, array_like=True):
    """Form of bytes as a tensor: dtype (``torch.float32``), shape, strides in elements, and if gradients pass it.

    ``offset`` is the place of its first element among them; ``is_conj`` and ``is_neg`` are its lazy bits.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False
    offset: int = 0
    is_conj: bool = False
    is_neg: bool = False


# What a call returned, with everything in it that is no tensor.


class AtTensor(msgspec.Struct, frozen=True, tag="tensor"):
    """The tensor of that number among those that follow."""

    number: int


class AtArgument(msgspec.Struct, frozen=True, tag="argument"):
    """The argument at a path itself, which the call returned."""

    path: str


class Items(msgspec.Struct, frozen=True, tag="list"):
    """A list."""

    items: list[Node]


class Fixed(msgspec.Struct, frozen=True, tag="tuple"):
    """A tuple, whatever torch calls it."""

    items: list[Node]


class Members(msgspec.Struct, frozen=True, tag="dict"):
    """A dict."""

    items: dict[str, Node]


class Size(msgspec.Struct, frozen=True, tag="size"):
    """A ``torch.Size``."""

    sizes: list[int]


class Complex(msgspec.Struct, frozen=True, tag="complex"):
    """A Python complex number."""

    real: float
    imag: float


class Dtype(msgspec.Struct, frozen=True, tag="dtype"):
    """A ``torch.dtype``."""

    name: str


Node: TypeAlias = (
    "AtTensor | AtArgument | Items | Fixed | Members | Size | Complex | Dtype | bool | int | float | str | None"
)


# What is asked of the process elsewhere.


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Load a framework and find a device. Answered by Cards."""

    framework: str
    device: str
    plugin: str = ""


class Activate(msgspec.Struct, frozen=True, tag="activate"):
    """Make one card the target of all that follows. Answered by Card."""

    index: int


class Draw(msgspec.Struct, frozen=True):
    """Origin of drawn arguments: the seed, from the whole recorded ranges or ``narrow`` ones, and the digest of all."""

    seed: int
    narrow: bool
    digest: bytes


class Forward(msgspec.Struct, frozen=True, tag="forward"):
    """Run a recorded call and keep it. Answered by Ran, or by Unlike where other inputs were drawn there.

    ``forward`` and ``backward`` are the bodies of its records, ``tensors`` its arguments' by path, in the order of the
    bytes that follow; none follow where the arguments are to be ``drawn`` there too. ``seed`` is for what the call
    itself draws; ``autocasts`` is False where no region of autocast is to be made for it, ``off`` True where its
    randomness is to be switched off. ``memory`` is that of `ReplayConfig`.
    """

    record: str
    forward: Any
    backward: Any
    seed: int
    autocasts: bool
    off: bool
    tensors: dict[str, TensorForm]
    drawn: Draw | None = None
    memory: Literal["recorded", "resolved", "contiguous", "given"] = "recorded"


class Backward(msgspec.Struct, frozen=True, tag="backward"):
    """Give the gradients of the call that is kept, for those of its results by path. Answered by Gradients."""

    tensors: dict[str, TensorForm]


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """Compute something small. Answered by Card."""


Request: TypeAlias = Open | Activate | Forward | Backward | Probe


# What it answers.


class Greeting(msgspec.Struct, frozen=True, tag="greeting"):
    """First message of the server: what it is, and which version of torch is installed there, if any."""

    protocol: int
    version: str
    python: str
    torch: str = ""


class Cards(msgspec.Struct, frozen=True, tag="cards"):
    """Number of the device's cards."""

    count: int


class Card(msgspec.Struct, frozen=True, tag="card"):
    """Active card: in words, what computes (``cuda``), and the modes that it is in."""

    description: str
    hardware: str
    math_modes: dict[str, str]
    reduced_precision: dict[str, str | bool]


class Ran(msgspec.Struct, frozen=True, tag="ran"):
    """Results of a call: output, arguments by path, those of them that it wrote to, and those with gradients."""

    output: Node
    arguments: dict[str, int]
    written: list[str]
    leaves: list[str]
    tensors: list[TensorForm]


class Unlike(msgspec.Struct, frozen=True, tag="unlike"):
    """The inputs that were drawn there are others, as another version of torch may draw them."""


class Gradients(msgspec.Struct, frozen=True, tag="gradients"):
    """The gradients by path; none where no output depends on the argument."""

    found: dict[str, int | None]
    tensors: list[TensorForm]


class Skipped(msgspec.Struct, frozen=True, tag="skipped"):
    """The call cannot be run there; ``reason`` is the text of a declared reason."""

    reason: str
    detail: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Failure of a request: of the API (``target``), of memory (``memory``), the device (``device``) or us (``error``).

    ``ends`` says that the card no longer works, and the process is about to end.
    """

    kind: Literal["target", "memory", "device", "error"]
    text: str
    ends: bool = False


Answer: TypeAlias = Greeting | Cards | Card | Ran | Unlike | Gradients | Skipped | Failed


#: No frame is longer; what is longer crosses in several.
LARGEST_FRAME = 16 * 2**20

_HEADER = struct.Struct(">cI")
_MESSAGE, _BYTES = b"M", b"B"
_KEPT_OF_ERRORS = 4096


class BrokenPipesError(Exception):
    """The other end has closed, or sends what makes no sense."""


class EndedError(BrokenPipesError):
    """The other end has ended."""


class OutOfTimeError(BrokenPipesError):
    """The other end took longer than it may."""


class GarbageError(BrokenPipesError):
    """The other end sent what it must not."""


class Frames:
    """Messages over two pipes; ``errors`` is one more, whose last words are kept in ``last_words``.

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
        received = bytearray()
        while len(received) < len(words):
            received += self._read(1, until)
            if not words.startswith(received):
                raise GarbageError(f"it printed {bytes(received + self._at_hand())!r:.200}")

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

    def _header(self, expected: bytes, longest: int, until: float | None) -> int:
        kind, length = _HEADER.unpack(self._read(_HEADER.size, until))
        if kind != expected or not 0 < length <= longest:
            raise GarbageError(f"a frame {kind!r} of {length} bytes where {expected!r} of at most {longest} was due")
        return int(length)

    def _read(self, size: int, until: float | None) -> bytearray:
        content = bytearray(size)
        self._read_into(memoryview(content), until)
        return content

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
