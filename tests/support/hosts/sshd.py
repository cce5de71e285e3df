"""Hosts that ssh reaches: sshd on ports of this machine, each with processes and mounts of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.requirements import require

_SERVER = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))
# Between the choice of a port and the server that takes it, another process may have taken it.
_PORTS_TRIED = 5

# Processes of a namespace end with its first one, so that nothing outlives the host.
_NAMESPACE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

# Under root sshd needs a folder below /run, which only some machines have; this one disappears with the host.
_BEGIN = "mount -t tmpfs none /run && mkdir -m 755 /run/sshd"

_SERVER_CONFIG = """
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
{environment}
"""

_CLIENT_CONFIG = """
Host {name}
    HostName 127.0.0.1
    Port {port}
    HostKeyAlias {name}
    UserKnownHostsFile {folder}/known_hosts
    IdentityFile {folder}/user_key
    IdentitiesOnly yes
    BatchMode yes
    LogLevel ERROR
"""


@dataclass(frozen=True)
class Host:
    """A host by the name that ``ssh -F config`` knows."""

    name: str
    config: Path
    _server: subprocess.Popen[bytes]

    def spec(self, *more: str, python: str = sys.executable) -> str:
        """Return how execnet and xdist's ``--tx`` name a Python there; ``more`` is what else they may be given."""
        return "//".join([f"ssh={self.name}", f"ssh_config={self.config}", f"python={python}", *more])

    def lose(self) -> None:
        """Make the host disappear, with all that runs on it."""
        self._server.kill()
        self._server.wait()


@contextlib.contextmanager
def ssh_host(
    folder: Path,
    name: str,
    *,
    without: Sequence[Path] = (),
    small_disks: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Host]:
    """Have a host of this name, whose keys, configuration and log lie in ``folder``/``name``.

    Its processes see this machine's files but for the folders of ``without``, which are empty there, and those of
    ``small_disks``, which take as much as is said of each, as in ``1m``. They are given where Python finds modules as
    this process is, and what ``environment`` says.
    """
    require(_SERVER and shutil.which("ssh"), "ssh and sshd")
    if not _may_mount():
        # No installation gives this right, so that the variable of required parts does not ask for it.
        pytest.skip("this machine gives its processes no namespaces with mounts of their own")
    own = folder / name
    own.mkdir(parents=True)
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", own / key], check=True)
    kind, public = (own / "host_key.pub").read_text().split()[:2]
    (own / "known_hosts").write_text(f"{name} {kind} {public}\n")
    reported = {**_module_paths(), "OMP_NUM_THREADS": "1", **(environment or {})}
    words = " ".join(f'"{key}={value}"' for key, value in reported.items())
    mounts = {**dict.fromkeys(without, "1m"), **(small_disks or {})}
    mount = [f"mount -t tmpfs -o size={size} none {shlex.quote(str(path))}" for path, size in mounts.items()]
    serve = f"exec {_SERVER} -D -e -f {shlex.quote(str(own / 'sshd_config'))}"
    command = [*_NAMESPACE, "sh", "-c", " && ".join([_BEGIN, *mount, serve])]
    for _ in range(_PORTS_TRIED):
        port = _free_port()
        (own / "sshd_config").write_text(_SERVER_CONFIG.format(port=port, folder=own, environment=f"SetEnv {words}"))
        (own / "ssh_config").write_text(_CLIENT_CONFIG.format(name=name, port=port, folder=own))
        with (own / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as server:
            try:
                if _listens(server, own / "log"):
                    yield Host(name, own / "ssh_config", server)
                    return
            finally:
                server.kill()
    raise RuntimeError(f"sshd did not start: {(own / 'log').read_text()}")


@functools.cache
def _may_mount() -> bool:
    return subprocess.run([*_NAMESPACE, "mount", "-t", "tmpfs", "none", "/run"], capture_output=True).returncode == 0


def _module_paths() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _listens(server: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait until a server says that it listens, or ends."""
    while server.poll() is None:
        if b"Server listening on" in log.read_bytes():
            return True
        time.sleep(0.02)
    return False
