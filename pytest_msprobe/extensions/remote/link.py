"""A remote Python process, started when it is first asked something and again after it was lost."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import NoReturn, TypeVar

import msgspec

from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.frames import BrokenPipesError, EndedError, Frames, GarbageError, OutOfTimeError
from pytest_msprobe.extensions.remote.messages import HAIL, PROTOCOL, Answer, Failed, Greeting, Request, Skipped, Unlike
from pytest_msprobe.extensions.remote.spec import Spec
from pytest_msprobe.results.outcomes import Breakdown

#: How long a host may take until its Python answers, and that one until its framework is loaded.
START_SECONDS = 120.0

# What a pipe takes before a process has to wait, if the system allows it.
_PIPE_BYTES = 2**20

# How long a process may take to end that has closed its pipes.
_DYING_SECONDS = 1.0

_SSH_FAILED, _NOT_FOUND = 255, 127

_Answer = TypeVar("_Answer", bound=Answer)


class LinkError(Exception):
    """The link was lost in what was asked; ``breakdown`` says how."""

    def __init__(self, text: str, breakdown: Breakdown) -> None:
        super().__init__(text)
        self.breakdown = breakdown


@dataclass(frozen=True)
class _Process:
    frames: Frames
    popen: subprocess.Popen[bytes]
    end: Callable[[], object]


class Link:
    """The link to the Python of a SPEC.

    ``prepare`` is called with every new process, before anything else is asked of it, and may raise DeviceError.
    ``greeting`` is that of the last one.
    """

    def __init__(self, spec: Spec, name: str, prepare: Callable[[], None]) -> None:
        self.greeting: Greeting | None = None
        self._spec = spec
        self._name = name
        self._prepare = prepare
        self._process: _Process | None = None
        self._unreachable = ""

    @property
    def is_open(self) -> bool:
        """Whether there is a process to ask."""
        return self._process is not None

    def open(self) -> None:
        """Start the process. Raises DeviceError that says why there is none, or none that can be used."""
        if self._process is None:
            try:
                self._open()
            except DeviceError as error:
                self.close()
                self._unreachable = str(error)
                raise

    def ask(
        self,
        request: Request,
        answer: type[_Answer],
        blobs: Sequence[memoryview] = (),
        *,
        limit: float = 0,
        seconds: float | None = None,
    ) -> tuple[_Answer | Unlike | Skipped | Failed, list[bytearray]]:
        """Return the answer to a request with its bytes, of which ``limit`` are possible.

        Raises LinkError where the link is lost, also by an answer that is none. It is opened anew for the next request,
        unless that has failed once.
        """
        if self._process is None:
            self._open_again()
        seconds = self._spec.seconds if seconds is None else seconds
        try:
            return self._ask(request, answer, blobs, limit, seconds)
        except BrokenPipesError as error:
            raise self._lost(error, seconds) from None
        except BaseException:
            # Whatever cut this off, the answer is still to come and belongs to no later request.
            self.close()
            raise

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.end()
            self._process = None

    def refused(self, what: str) -> LinkError:
        """End the link over an answer that cannot be, and return what to raise."""
        self.close()
        return LinkError(f"{self._spec.host} sent {what}; the link was closed", Breakdown.ERROR)

    def _ask(
        self, request: Request, answer: type[_Answer], blobs: Sequence[memoryview], limit: float, seconds: float
    ) -> tuple[_Answer | Unlike | Skipped | Failed, list[bytearray]]:
        assert self._process is not None
        frames, until = self._process.frames, time.monotonic() + seconds
        frames.send(msgspec.msgpack.encode(request), blobs, seconds=seconds, until=until)
        envelope, found = frames.receive(limit, until=until)
        try:
            reply = msgspec.msgpack.decode(envelope.body, type=Answer)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise GarbageError(f"an answer that cannot be read: {error}") from None
        if not isinstance(reply, (answer, Unlike, Skipped, Failed)):
            raise GarbageError(f"{type(reply).__name__} where {answer.__name__} was due")
        if isinstance(reply, Failed) and reply.ends:
            self.close()
        return reply, found

    def _open_again(self) -> None:
        if self._unreachable:
            raise LinkError(f"the link was lost, and could not be opened again: {self._unreachable}", Breakdown.CRASH)
        try:
            self.open()
        except DeviceError as error:
            raise LinkError(f"the link was lost, and could not be opened again: {error}", Breakdown.CRASH) from None

    def _open(self) -> None:
        command = self._spec.command()
        folder = None if self._spec.ssh else self._spec.chdir or None
        pipe = subprocess.PIPE
        try:
            # In a session of its own, so that Ctrl-C ends the run and not the link in the middle of a record.
            popen = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                cwd=folder,
                env=self._spec.local_environment(),
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(f"{self._name}: {error.filename or command[0]}: {error.strerror}") from None
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        for end in (popen.stdin, popen.stdout):
            with contextlib.suppress(OSError, AttributeError):
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        frames = Frames(popen.stdout.fileno(), popen.stdin.fileno(), popen.stderr.fileno())
        self._process = _Process(frames, popen, weakref.finalize(self, _end, popen))
        until = time.monotonic() + START_SECONDS
        try:
            frames.expect(HAIL, until=until)
            envelope, _ = frames.receive(0, until=until)
            self.greeting = msgspec.msgpack.decode(envelope.body, type=Greeting)
        except (BrokenPipesError, msgspec.DecodeError) as error:
            self._raise_unusable(error)
        if self.greeting.protocol != PROTOCOL:
            raise DeviceError(
                f"{self._name}: pytest-msprobe {self.greeting.version} there uses another protocol than "
                f"{version('pytest-msprobe')} here; install the same version there"
            )
        if not self.greeting.torch:
            raise DeviceError(
                f"{self._name}: {self.greeting.python} there has no torch; install it, or name another Python by "
                "//python=PATH"
            )
        self._prepare()

    def _raise_unusable(self, error: Exception) -> NoReturn:
        """Raise DeviceError for a process that did not greet."""
        status, words = self._last_of_process(has_ended=isinstance(error, EndedError))
        where = f"{self._name}: {self._spec.host}"
        if isinstance(error, OutOfTimeError):
            raise DeviceError(f"{where} does not answer within {START_SECONDS:.0f} s{_quoted(words)}") from None
        if isinstance(error, GarbageError):
            raise DeviceError(
                f"{where}: in place of a greeting {error}; shells that ssh starts must print nothing"
            ) from None
        if self._spec.ssh and status == _SSH_FAILED:
            raise DeviceError(f"{where} cannot be reached{_quoted(words)}; ssh must connect without a prompt") from None
        if status == _NOT_FOUND or "No module named" in words:
            raise DeviceError(
                f"{where}: no Python with pytest-msprobe {version('pytest-msprobe')}{_quoted(words)}; install it "
                "there, or name its Python by //python=PATH"
            ) from None
        raise DeviceError(f"{where}: Python ended before it answered (status {status}){_quoted(words)}") from None

    def _lost(self, error: BrokenPipesError, seconds: float) -> LinkError:
        """Return what became of the link, which is closed."""
        status, words = self._last_of_process(has_ended=isinstance(error, EndedError))
        host = self._spec.host
        if isinstance(error, OutOfTimeError):
            text = f"the link to {host} gave no answer within {seconds:g} s, the limit of //timeout="
            return LinkError(text, Breakdown.TIMEOUT)
        if isinstance(error, GarbageError):
            return self.refused(str(error))
        died = f"by signal {-status}" if status is not None and status < 0 else f"with status {status}"
        return LinkError(f"the link to {host} ended {died} in this record{_quoted(words)}", Breakdown.CRASH)

    def _last_of_process(self, *, has_ended: bool) -> tuple[int | None, str]:
        """End the process and return its status and the last line of what it said on stderr."""
        assert self._process is not None
        popen, frames = self._process.popen, self._process.frames
        if has_ended:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(_DYING_SECONDS)
        frames.hear()
        status = popen.poll()
        self.close()
        lines = frames.last_words.decode(errors="replace").strip().splitlines()
        return status, lines[-1].strip() if lines else ""


def _quoted(words: str) -> str:
    return f": {words}" if words else ""


def _end(popen: subprocess.Popen[bytes]) -> None:
    for pipe in (popen.stdin, popen.stdout, popen.stderr):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    popen.kill()
    popen.wait()
