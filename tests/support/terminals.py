"""Commands that run on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path


def on_a_terminal(*command: str, folder: Path, answer: str = "") -> str:
    """Run a command on a terminal of its own, on which what a debugger gets is typed; return what it wrote."""
    ours, its = pty.openpty()
    process = subprocess.Popen(
        command, stdin=its, stdout=its, stderr=its, cwd=folder, env=os.environ | {"TERM": "xterm"}
    )
    os.close(its)
    os.write(ours, answer.encode())
    written = b""
    try:
        while part := os.read(ours, 65536):
            written += part
    except OSError:
        # The terminal's other end is closed.
        pass
    finally:
        os.close(ours)
        process.wait()
    return written.decode(errors="replace")
