"""msprobe's viewer of graphs, TensorBoard with its plugin, started on a folder and asked as its page asks it."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from tests.support.requirements import require

_PROGRAM = Path(__file__).parents[3] / ".venv-viewer" / "bin" / "tensorboard"
_NOBODY = 65534
# The plugin checks nothing where root runs it. This user may still read an interpreter in root's home.
_AS_NOBODY = f"""setpriv --reuid={_NOBODY} --regid={_NOBODY} --clear-groups
    --inh-caps=+dac_override --ambient-caps=+dac_override""".split()
_PATIENCE = 300


@dataclass(frozen=True)
class Viewer:
    """A running viewer."""

    address: str

    @property
    def page(self) -> str:
        """Where its page is."""
        return f"{self.address}/index.html"

    def runs(self) -> dict[str, Any]:
        """Return the folders with graphs, each with its form and its files, as the page lists them."""
        found = json.loads(self._get("load_meta_dir"))
        assert found["error"] == []
        folders: dict[str, Any] = found["data"]
        return folders

    def open(self, run: str, tag: str | None = None, *, rank: int = 0, step: int = 0) -> Opened:
        """Load a file, of several the one named ``tag``."""
        known = self.runs()[run]
        meta = {"run": run, "tag": tag or known["tags"][0], "type": known["type"], "lang": "en"}
        words = "&".join(f"{name}={value}" for name, value in meta.items())
        assert '"error"' not in self._get(f"loadGraphData?{words}")
        opened = Opened(self, meta | {"microStep": -1, "rank": rank, "step": step})
        opened.ask("loadGraphConfigInfo")
        return opened

    def _get(self, what: str) -> str:
        with urlopen(f"{self.address}/{what}", timeout=_PATIENCE) as answer:
            text: str = answer.read().decode()
            return text

    def post(self, what: str, body: dict[str, Any]) -> Any:
        """Ask an endpoint; what it answers must be a success."""
        request = Request(f"{self.address}/{what}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, timeout=_PATIENCE) as answer:
            found = json.loads(answer.read())
        assert found["success"], found
        return found.get("data")


@dataclass(frozen=True)
class Opened:
    """A file that the viewer has loaded, at a rank and a step."""

    viewer: Viewer
    meta: dict[str, Any]

    def ask(self, what: str, **body: Any) -> Any:
        """Ask an endpoint about the file."""
        return self.viewer.post(what, body | {"metaData": self.meta})

    def expand(self, node: str, side: str = "NPU") -> dict[str, Any]:
        """Click a node, ``root`` to begin, and return what the page then draws, by name."""
        drawn: dict[str, Any] = self.ask("changeNodeExpandState", nodeInfo={"nodeName": node, "nodeType": side})
        return drawn

    def node(self, name: str, side: str = "NPU") -> dict[str, Any]:
        """Return what the page shows below the graph for a node: its values and stack, and its partner's."""
        reported: dict[str, Any] = self.ask("getNodeInfo", nodeInfo={"nodeName": name, "nodeType": side})
        return reported

    def filter(self, kind: str, values: list[Any]) -> list[str]:
        """Return the nodes of classes of precision, or of levels of overflow."""
        names: list[str] = self.ask("screen", type=kind, values=values)
        return names


@contextmanager
def open_viewer(folder: Path) -> Iterator[Viewer]:
    """Start TensorBoard on a folder, as a user that is not root, and end it."""
    require(_PROGRAM.exists(), f"msprobe's viewer in {_PROGRAM.parent.parent.name} (make test-slow installs it)")
    words: list[str | Path] = []
    if os.getuid() == 0:
        require(shutil.which("setpriv"), "setpriv, to start the viewer as another user than root")
        words += _AS_NOBODY
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _NOBODY, _NOBODY)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    words += [_PROGRAM, "--logdir", folder, "--port", str(port), "--load_fast=false"]
    log = folder.parent / "viewer.log"
    with log.open("wb") as output:
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        process = subprocess.Popen(words, env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        viewer = Viewer(f"http://localhost:{port}/data/plugin/graph_ascend")
        _wait(viewer, process, log)
        yield viewer
    finally:
        process.terminate()
        process.wait()


def _wait(viewer: Viewer, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            viewer.runs()
        except URLError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        else:
            return
