"""What the two ends of a link send each other: data without tensors, which follow as bytes; nothing is unpickled."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

#: Raised by one whenever an end of an earlier version would not understand, or misunderstand, what is said here.
PROTOCOL = 2

#: What the process elsewhere says first, before any frame, so that nothing else can be taken for it.
HAIL = b"pytest-msprobe remote\n"


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A message and what follows it: the sizes in bytes of its tensors. The other end gives up after ``seconds``."""

    body: msgspec.Raw
    sizes: tuple[int, ...] = ()
    seconds: float = 0.0


class TensorForm(msgspec.Struct, frozen=True, array_like=True):
    """What bytes are as a tensor: dtype (``torch.float32``), shape, strides in elements, and if gradients pass it.

    ``offset`` is the place of its first element among them.
    """

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    requires_grad: bool = False
    offset: int = 0


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
    """How arguments were drawn: the seed, from the whole recorded ranges or ``narrow`` ones, and the digest of all."""

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
    memory: Literal["recorded", "contiguous", "given"] = "recorded"


class Backward(msgspec.Struct, frozen=True, tag="backward"):
    """Give the gradients of the call that is kept, for those of its results by path. Answered by Gradients."""

    tensors: dict[str, TensorForm]


class Probe(msgspec.Struct, frozen=True, tag="probe"):
    """Compute something small. Answered by Card."""


Request: TypeAlias = Open | Activate | Forward | Backward | Probe


# What it answers.


class Greeting(msgspec.Struct, frozen=True, tag="greeting"):
    """What it says unasked: what it is, and which version of torch is installed there, if any."""

    protocol: int
    version: str
    python: str
    torch: str = ""


class Cards(msgspec.Struct, frozen=True, tag="cards"):
    """How many cards the device has."""

    count: int


class Card(msgspec.Struct, frozen=True, tag="card"):
    """What is active: in words, what computes (``cuda``), and the modes that it is in."""

    description: str
    hardware: str
    math_modes: dict[str, str]
    reduced_precision: dict[str, str | bool]


class Ran(msgspec.Struct, frozen=True, tag="ran"):
    """What a call gave: output, arguments by path, those of them that it wrote to, and those with gradients."""

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
    """The call cannot be run there; ``reason`` is the name of a `SkipReason`."""

    reason: str
    detail: str


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """What was asked raised: the API (``target``), for memory (``memory``), the device (``device``) or we (``error``).

    ``ends`` says that the card no longer works, and the process is about to end.
    """

    kind: Literal["target", "memory", "device", "error"]
    text: str
    ends: bool = False


Answer: TypeAlias = Greeting | Cards | Card | Ran | Unlike | Gradients | Skipped | Failed
