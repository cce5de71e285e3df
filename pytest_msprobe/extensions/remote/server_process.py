"""The process that a link starts on another machine: it greets, then runs what it is sent until its input ends."""

from __future__ import annotations

import os
import platform
import signal
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from pytest_msprobe.extensions.remote.messages import (
    HAIL,
    PROTOCOL,
    Answer,
    BrokenPipesError,
    Envelope,
    Failed,
    Frames,
    Greeting,
    Request,
)
from pytest_msprobe.results.outcomes import describe_error

# The end that asks gives up first, and says more than a signal does.
_GRACE_SECONDS = 10.0


def main() -> None:
    """Serve the pipes that this process was started with."""
    frames = _own_pipes()
    torch = _version("torch")
    greeting = Greeting(PROTOCOL, _version("pytest-msprobe"), f"Python {platform.python_version()}", torch)
    frames.send(msgspec.msgpack.encode(greeting))
    if not torch:
        return
    server: Any = None
    try:
        while True:
            envelope, blobs = frames.receive(float("inf"))
            # Whoever asked may be gone, and a call that hangs in native code hears of nothing but a signal.
            signal.setitimer(signal.ITIMER_REAL, envelope.seconds + _GRACE_SECONDS)
            if server is None:
                server = _load()
            answer, tensors = _answered(server, envelope, blobs)
            frames.send(msgspec.msgpack.encode(answer), tensors)
            signal.setitimer(signal.ITIMER_REAL, 0)
            if isinstance(answer, Failed) and answer.ends:
                return
    except BrokenPipesError:
        return


def _answered(server: Any, envelope: Envelope, blobs: list[bytearray]) -> tuple[Answer, list[memoryview]]:
    try:
        request = msgspec.msgpack.decode(envelope.body, type=Request)
        return server.answer(request, blobs)  # type: ignore[no-any-return]
    except Exception as error:
        # Whatever it is, it is the answer to this request and not the end of the process.
        return Failed("error", describe_error(error)), []


def _load() -> Any:
    # What this imports takes seconds, and cannot be imported where there is no torch.
    from pytest_msprobe.extensions.remote.server import Server

    return Server()


def _own_pipes() -> Frames:
    """Take the pipes for our own, so that nothing that is printed here can be taken for an answer."""
    reading, writing = os.dup(0), os.dup(1)
    os.write(writing, HAIL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return Frames(reading, writing)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
