"""Starts the trainings of real frameworks, in the environment that `make nightly` builds for them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.requirements import require

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-frameworks/bin/python"
#: veRL alone: its wheel has a package called tests, which would hide ours.
VERL = ROOT / ".venv-frameworks/verl"
_PATH = os.pathsep.join(map(str, (ROOT / "standards", ROOT / "hook_lib", ROOT)))
#: Nothing is downloaded, and nothing but a CPU is used.
VARIABLES = {
    "PYTHONPATH": _PATH,
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "DS_ACCELERATOR": "cpu",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


def run_thrice(training: str, folder: Path, ranks: int = 1) -> None:
    """Run a training plain, recorded and recorded with a fault, in each of its ranks; each must end without an error.

    ``folder`` then holds the recordings ``recorded`` and ``faulty``, and what `outcome` reads.
    """
    run_module("process", folder, training, folder, str(ranks))


def run_module(module: str, folder: Path, *arguments: str | Path) -> str:
    """Run a module of this folder with these arguments; it must end without an error. Return what it printed."""
    require(PYTHON.exists(), ".venv-frameworks, which make nightly builds")
    ended = subprocess.run(
        [PYTHON, "-W", "ignore", "-m", f"tests.support.frameworks.{module}", *arguments],
        cwd=ROOT,
        env=os.environ | VARIABLES | {"HF_HOME": str(folder / "hub")},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
    return ended.stdout
