"""The simulated NPU: processes that have it, and what tests ask it there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.requirements import require

#: The folder of the package ``torch_npu``; on PYTHONPATH it gives a process cards.
PACKAGE = Path(__file__).parent / "simulated_npu"
#: Named here, where HOME is still the user's: pytester gives each test another.
_COMPILED = os.environ.get("TORCH_EXTENSIONS_DIR", str(Path.home() / ".cache" / "torch_extensions"))

_COMMAND = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main())"


def variables() -> dict[str, str]:
    """Return the environment variables that give a process the simulated NPU."""
    path = os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH"))))
    return {"PYTHONPATH": path, "TORCH_EXTENSIONS_DIR": _COMPILED}


def compile_kernels() -> None:
    """Compile the cards' kernels where no process has done so before; without a compiler the test is skipped."""
    require(shutil.which("g++") and shutil.which("ninja"), "g++ with ninja")
    run_script("import torch_npu")


def run_script(script: str, *arguments: str | Path, **more: str) -> str:
    """Run a script in a process that has cards and these variables, and return what it prints."""
    done = _run("-c", script, *arguments, **more)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_command(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run ``pytest-msprobe`` with these arguments, in a process that has cards and these variables."""
    return _run(
        "-c", "import sys, pytest_msprobe.commands.main as command; sys.exit(command.main())", *arguments, **more
    )


def _run(*arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | variables() | more, capture_output=True, text=True, check=False)
