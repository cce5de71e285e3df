"""The command itself."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from tests.support.journals import make_judged, write_journal


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pytest-msprobe {version('pytest-msprobe')}\n"


def test_where_nobody_reads_any_more_a_command_ends_without_a_word(tmp_path: Path) -> None:
    journal = write_journal(
        tmp_path / "run.jsonl", *(make_judged(f"Torch.mul.{i}.forward", "fail", 3.0) for i in range(40))
    )
    program = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "report", str(journal)]
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")
