"""Programs that import msprobe use this recorder by the package that ``msprobe stand-in`` writes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main

#: What public programs import, each checked to be ours.
SAME = """
import msprobe_hooks, pytest_msprobe
from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end, seed_all, TrainerMon
assert PrecisionDebugger is msprobe_hooks.PrecisionDebugger and TrainerMon is msprobe_hooks.TrainerMon
from msprobe.pytorch.common import seed_all
from msprobe.pytorch.common.utils import seed_all
assert seed_all is msprobe_hooks.seed_all
from msprobe.pytorch.debugger.precision_debugger import PrecisionDebugger as debugger_1_2
from msprobe.pytorch.dump.debugger.precision_debugger import PrecisionDebugger as debugger_26
assert debugger_1_2 is debugger_26 is PrecisionDebugger
from msprobe.pytorch.monitor.module_hook import TrainerMon
from msprobe.pytorch.online_dispatch.dispatch import PtdbgDispatch
assert PtdbgDispatch is pytest_msprobe.PtdbgDispatch
"""

RECORDS = """
import torch
from msprobe.pytorch import *
debugger = PrecisionDebugger(dump_path="run", task="statistics", level="L1")
debugger.start()
torch.relu(torch.ones(2))
debugger.stop()
debugger.step()
"""


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a folder with the package."""
    folder = tmp_path / "as_msprobe"
    assert main(["msprobe", "stand-in", str(folder)]) == 0
    assert f"PYTHONPATH={folder}" in capsys.readouterr().out
    return folder


def run(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the package, in a process of its own: it stays in a process that has imported it."""
    paths = os.pathsep.join([str(folder), *filter(None, sys.path)])
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder.parent,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_module_that_programs_import_has_our_names(folder: Path) -> None:
    done = run(folder, SAME)
    assert done.returncode == 0, done.stderr


def test_importing_it_imports_neither_torch_nor_pytest(folder: Path) -> None:
    program = "import sys, msprobe.pytorch as m; m.PrecisionDebugger; print({'torch', 'pytest'} & {*sys.modules})"
    assert run(folder, program).stdout == "set()\n"


def test_a_program_records_by_it(folder: Path) -> None:
    done = run(folder, RECORDS)
    assert done.returncode == 0, done.stderr
    assert "Torch.relu.0.forward" in (folder.parent / "run" / "step0" / "rank" / "dump.json").read_text()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("from msprobe.pytorch import compare", "ImportError: .*compare the recordings afterwards"),
        ("import msprobe.core.config_check.checkers", "ModuleNotFoundError: msprobe.core.config_check .*environment"),
        ("import msprobe.core.common.const", "ModuleNotFoundError: msprobe.core.common.const is not in"),
        ("from msprobe.pytorch import nothing", "ImportError: cannot import name 'nothing'"),
    ],
)
def test_what_it_lacks_is_an_import_error_with_the_remedy(folder: Path, statement: str, message: str) -> None:
    assert re.search(message, run(folder, statement).stderr)


def test_a_program_can_ask_what_it_has(folder: Path) -> None:
    program = "import msprobe.pytorch as m; print(hasattr(m, 'seed_all'), hasattr(m, 'nothing'))"
    assert run(folder, program).stdout == "True False\n"


def test_a_package_that_is_there_is_written_again_and_another_file_is_not(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["msprobe", "stand-in", str(folder)]) == 0
    (folder / "msprobe" / "__init__.py").write_text("mine = True\n")
    assert main(["msprobe", "stand-in", str(folder)]) == 2
    assert "is another file already" in capsys.readouterr().err
    assert (folder / "msprobe" / "__init__.py").read_text() == "mine = True\n"
