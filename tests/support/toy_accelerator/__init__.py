"""The accelerator ``toy``: a backend of torch in 300 lines, and processes that have its two cards.

``python -m tests.support.toy_accelerator COMMAND`` runs a command with the cards; ``torch_toy/backend.cpp`` lists the
variables that plant faults and take things away.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import torch

from tests.support.requirements import require

_HERE = Path(__file__).parent
_SOURCE = _HERE / "torch_toy/backend.cpp"
_REPOSITORY = Path(__file__).parents[3]
#: Named here, where HOME is still the user's: pytester gives each test another.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "toy_accelerator"
# Apart from this process, in which the extension would become torch's accelerator.
_BUILD = """
import sys
from torch.utils import cpp_extension
cpp_extension.load("_toy", [sys.argv[1]], extra_cflags=["-O0"], build_directory=sys.argv[2])
"""


def library() -> Path:
    """Return the backend, compiled before if no process has done so for this source, torch and Python.

    Raises CalledProcessError where the compiler finds an error.
    """
    text = f"{torch.__version__} {sys.version} {_SOURCE.read_text()}"
    folder = _CACHE / hashlib.sha256(text.encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "building").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            # One that was killed leaves torch's own lock, for which the next would wait without end.
            (folder / "lock").unlink(missing_ok=True)
            subprocess.run([sys.executable, "-c", _BUILD, _SOURCE, folder], check=True, stdout=subprocess.DEVNULL)
            (folder / "complete").touch()
    return folder / "_toy.so"


def variables() -> dict[str, str]:
    """Return the environment variables that give a process, and those that it starts, the cards."""
    paths = [str(_HERE), os.environ.get("PYTHONPATH", "")]
    return {"TOY_LIBRARY": str(library()), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def require_toy() -> None:
    """Compile the backend if no process has; without a compiler or torch.accelerator the test is skipped."""
    require(shutil.which("c++") and shutil.which("ninja"), "a C++ compiler and ninja")
    require(hasattr(torch, "accelerator"), "torch 2.6 or newer")
    library()


def run_script(script: str) -> str:
    """Run a script in a process that has the cards, and return what it prints."""
    environment = os.environ | variables()
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
