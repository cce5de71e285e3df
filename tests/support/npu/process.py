"""The simulated NPU: processes that have its cards, by Huawei's own torch_npu, and what tests ask it there.

``python -m tests.support.npu.process COMMAND`` runs a command with the cards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.cann import libraries
from tests.support.requirements import require

_REPOSITORY = Path(__file__).parents[3]
#: Where ``make`` installs torch_npu, or another version is.
PACKAGE = Path(os.environ.get("SIMULATED_CANN_TORCH_NPU", _REPOSITORY / ".venv-npu"))
_START = Path(__file__).parents[1] / "cann" / "start"


def variables() -> dict[str, str]:
    """Return the environment variables that give a process, and those that it starts, the simulated cards."""
    home = libraries.installed()
    paths = {
        "PYTHONPATH": (_START, PACKAGE, os.environ.get("PYTHONPATH"), _REPOSITORY),
        "LD_LIBRARY_PATH": (home / "lib64", os.environ.get("LD_LIBRARY_PATH")),
    }
    joined = {name: os.pathsep.join(str(part) for part in parts if part) for name, parts in paths.items()}
    # Without torch_npu's queue, a collective and its event reach their stream before the host computes the next kernel.
    fixed = {"ASCEND_HOME_PATH": str(home), "ASCEND_OPP_PATH": str(home / "opp"), "TASK_QUEUE_ENABLE": "0"}
    return joined | fixed


def require_cards() -> None:
    """Compile CANN's libraries where no process has done so; without torch_npu or a compiler the test is skipped."""
    require(PACKAGE.exists(), f"torch_npu in {PACKAGE.name}, by make {PACKAGE.name}/installed")
    require(libraries.can_compile(), "gcc")
    libraries.installed()


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


if __name__ == "__main__":
    os.execvpe(sys.argv[1], sys.argv[1:], os.environ | variables())
