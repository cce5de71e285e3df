"""What ``remote:SPEC`` names: a remote Python, spelled as execnet spells it, and the device to use there."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass, field

from msprobe_hooks.messages import did_you_mean
from pytest_msprobe.errors import DeviceError

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
    given: dict[str, str] = {}
    for part in text.split("//"):
        name, equals, value = part.partition("=")
        if name in given:
            raise _wrong(text, f"{name!r} is repeated")
        if name not in ("popen", "timeout", *_TEXTS) and not name.startswith("env:"):
            known = ["popen", *_TEXTS, "timeout", "env:NAME"]
            raise _wrong(text, f"unknown key {name!r}; known are {', '.join(known)}{did_you_mean(name, known)}")
        if name.startswith("env:") and not _VARIABLE.fullmatch(name.removeprefix("env:")):
            raise _wrong(text, f"{name!r} is not the name of a variable")
        if bool(equals and value) == (name == "popen"):
            raise _wrong(text, f"expected {'popen alone' if name == 'popen' else f'{name}=VALUE'}")
        given[name] = value
    if ("popen" in given) == ("ssh" in given):
        raise _wrong(text, "expected either ssh=HOST or popen, which is a process on this machine")
    if given.get("device", "").partition(":")[0] == "remote":
        raise _wrong(text, "the device there cannot be remote itself")
    if given.get("inputs", "sent") not in ("sent", "drawn"):
        raise _wrong(text, f"inputs={given['inputs']}: expected sent or drawn")
    # The Python of a host is read by the shell there.
    for name in ("ssh", "python") if "popen" in given else ("ssh",):
        _require_words(text, name, given.get(name, ""))
    environment = {name.removeprefix("env:"): value for name, value in given.items() if name.startswith("env:")}
    seconds = _seconds(text, given["timeout"]) if "timeout" in given else DEFAULT_SECONDS
    texts = {name: given[name] for name in _TEXTS if name in given}
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
