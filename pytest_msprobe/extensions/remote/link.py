"""Link to a remote Python process, spelled ``remote:SPEC``, started on demand and again after it was lost."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import NoReturn, TypeVar

import msgspec

from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.engine.replay.calls.remote_calls import LinkError
from pytest_msprobe.errors import DeviceError
from pytest_msprobe.extensions.remote.messages import (
    HAIL,
    PROTOCOL,
    Answer,
    BrokenPipesError,
    EndedError,
    Failed,
    Frames,
    GarbageError,
    Greeting,
    OutOfTimeError,
    Request,
    Skipped,
    Unlike,
)
from pytest_msprobe.results.outcomes import Breakdown

MODULE = "pytest_msprobe.extensions.remote.server_process"

#: How long one record may take there, bytes in both directions included, where the SPEC says nothing.
DEFAULT_SECONDS = 60.0

_TEXTS = ("ssh", "ssh_config", "python", "chdir", "device", "plugin", "inputs")

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)

_FORM = "as in remote:ssh=user@host//python=/path/to/python//device=cuda"


@dataclass(frozen=True)
class Spec:
    """A Python ``python`` on the host that the words of ``ssh`` reach, or on this machine where there are none.

    ``device`` is the name of a device there, ``plugin`` a module that is imported there before it is looked up.
    ``inputs`` that were drawn are ``sent``, or ``drawn`` there again. ``seconds`` is what one record may take.
    """

    ssh: str = ""
    ssh_config: str = ""
    python: str = ""
    chdir: str = ""
    device: str = "auto"
    plugin: str = ""
    inputs: str = "sent"
    seconds: float = field(default=DEFAULT_SECONDS, kw_only=True)
    environment: dict[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def host(self) -> str:
        """The host in words."""
        return self.ssh or "this machine"

    def command(self) -> list[str]:
        """Return the words that start the process; folder and environment are in them only over ssh.

        ssh is never asked to compress, as execnet's is, and never to prompt, which could not be answered.
        """
        if not self.ssh:
            return [*(shlex.split(self.python) or [sys.executable]), "-m", MODULE]
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        folder = f"cd {shlex.quote(self.chdir)} && " if self.chdir else ""
        words = [*(["env", *settings] if settings else []), self.python or "python3", "-m", MODULE]
        config = ["-F", self.ssh_config] if self.ssh_config else []
        return ["ssh", "-T", "-o", "BatchMode=yes", *config, *shlex.split(self.ssh), folder + " ".join(words)]

    def local_environment(self) -> dict[str, str] | None:
        """Return the whole environment of a process on this machine; None for this process's own."""
        return None if self.ssh or not self.environment else {**os.environ, **self.environment}


def parse_spec(text: str) -> Spec:
    """Read ``KEY=VALUE//KEY=VALUE...``. Raises DeviceError that says what is allowed."""
    keys: dict[str, str] = {}
    for part in text.split("//"):
        name, equals, value = part.partition("=")
        if name in keys:
            raise _wrong(text, f"{name!r} is repeated")
        if name not in ("popen", "timeout", *_TEXTS) and not name.startswith("env:"):
            names = ["popen", *_TEXTS, "timeout", "env:NAME"]
            raise _wrong(text, f"unknown key {name!r}; known are {', '.join(names)}{did_you_mean(name, names)}")
        if name.startswith("env:") and not _VARIABLE.fullmatch(name.removeprefix("env:")):
            raise _wrong(text, f"{name!r} is not the name of a variable")
        if bool(equals and value) == (name == "popen"):
            raise _wrong(text, f"expected {'popen alone' if name == 'popen' else f'{name}=VALUE'}")
        keys[name] = value
    if ("popen" in keys) == ("ssh" in keys):
        raise _wrong(text, "expected either ssh=HOST or popen, which is a process on this machine")
    if keys.get("device", "").partition(":")[0] == "remote":
        raise _wrong(text, "the device there cannot be remote itself")
    if keys.get("inputs", "sent") not in ("sent", "drawn"):
        raise _wrong(text, f"inputs={keys['inputs']}: expected sent or drawn")
    # The Python of a host is read by the shell there.
    for name in ("ssh", "python") if "popen" in keys else ("ssh",):
        _require_words(text, name, keys.get(name, ""))
    environment = {name.removeprefix("env:"): value for name, value in keys.items() if name.startswith("env:")}
    seconds = _seconds(text, keys["timeout"]) if "timeout" in keys else DEFAULT_SECONDS
    texts = {name: keys[name] for name in _TEXTS if name in keys}
    return Spec(seconds=seconds, environment=environment, **texts)


def _require_words(text: str, name: str, value: str) -> None:
    try:
        shlex.split(value)
    except ValueError as error:
        raise _wrong(text, f"{name}={value}: {error}") from None


def _seconds(text: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e6:
        raise _wrong(text, f"timeout={value}: expected a positive number of seconds")
    return seconds


def _wrong(text: str, problem: str) -> DeviceError:
    return DeviceError(f"device 'remote:{text}': {problem}; {_FORM}")


#: How long a host may take until its Python answers, and that one until its framework is loaded.
START_SECONDS = 120.0

# What a pipe takes before a process has to wait, if the system allows it.
_PIPE_BYTES = 2**20

# How long a process may take to end that has closed its pipes.
_DYING_SECONDS = 1.0

_SSH_FAILED, _NOT_FOUND = 255, 127

_Answer = TypeVar("_Answer", bound=Answer)


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
        """Return whether there is a process to ask."""
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
        envelope, answer_blobs = frames.receive(limit, until=until)
        try:
            reply = msgspec.msgpack.decode(envelope.body, type=Answer)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise GarbageError(f"an answer that cannot be read: {error}") from None
        if not isinstance(reply, (answer, Unlike, Skipped, Failed)):
            raise GarbageError(f"{type(reply).__name__} where {answer.__name__} was due")
        if isinstance(reply, Failed) and reply.ends:
            self.close()
        return reply, answer_blobs

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
