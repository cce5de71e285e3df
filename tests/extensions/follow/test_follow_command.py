"""``pytest-msprobe follow``, on folders and on a training that runs meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import read_journal
from tests.support.dumps.dump_files import SOFTMAX, write_dump

FAULTY_DEVICE = Path(__file__).parents[3] / "examples" / "faulty_device" / "conftest.py"

# Its third step alone calls softmax, which the faulty device computes wrongly.
TRAINING = """
import torch
from msprobe_hooks import PrecisionDebugger

debugger = PrecisionDebugger(dump_path="spool", task="tensor", spool_size="24KiB")
for step in range(4):
    debugger.start()
    x = torch.ones(4, 8).cumsum(1)
    x = torch.nn.functional.softmax(x, -1) if step == 2 else torch.tanh(x)
    debugger.stop()
    debugger.step()
(debugger._instance._session.recorder.settings.dump_path / "stop").touch()
"""


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["spool", "--", "--msprobe-journal=x.jsonl"], "name the journal of all steps, pass --journal FILE before --"),
        (["spool", "--", "--msprobe-shard", "1/2"], "pytest-msprobe follow sets this option for each step"),
        (["spool", "--timeout", "0"], "--timeout 0: expected a number of seconds above 0"),
        (["spool", "--idle", "nan"], "--idle nan: expected a number of seconds above 0"),
        (["spool", "--failed-steps", "0"], "--failed-steps 0: expected a number of at least 1"),
        (["spool", "--failed-size", "much"], "--failed-size much: expected a size, such as 10GiB"),
        (["file"], "file: not a directory; pass the dump_path of a recording with spool_size"),
        (
            ["nowhere", "--idle", "0.1"],
            "nowhere: no such directory, waited 0.1 s; pass the dump_path of a recording with spool_size",
        ),
    ],
)
def test_what_cannot_be_followed_is_reported_in_one_line(tmp_path, monkeypatch, capsys, words, problem):
    monkeypatch.chdir(tmp_path)
    Path("spool").mkdir()
    Path("file").touch()
    assert main(["follow", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pytest-msprobe: ")
    assert problem in line


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--timeout", "0.1"], "--timeout 0.1 s reached"),
        (["--idle", "0.1"], "no new step for 0.1 s"),
    ],
)
def test_following_ends_in_time_and_reports_what_was_dropped(tmp_path, capsys, words, reason):
    (tmp_path / "dropped.jsonl").write_text('{"step":1,"rank":0,"bytes":5,"reason":"the spool folder is full"}\n' * 2)
    assert main(["follow", str(tmp_path), *words]) == 0
    reported = capsys.readouterr().out
    assert f"stopped: {reason}" in reported
    assert "steps dropped by the training: 2, the spool folder is full" in reported


def test_a_line_of_what_was_dropped_that_cannot_be_read_is_reported(tmp_path, capsys):
    (tmp_path / "dropped.jsonl").write_text('{"step":1,"rank":0,"byt\n{"step":2,"rank":0,"bytes":5,"reason":"full"}\n')
    assert main(["follow", str(tmp_path), "--timeout", "0.1"]) == 0
    reported = capsys.readouterr().out
    assert "steps dropped by the training: 1, full" in reported
    assert "not known of all steps whether the training dropped them:" in reported
    assert "dropped.jsonl:1: " in reported


def test_a_folder_that_the_training_has_not_made_yet_is_waited_for(tmp_path, capsys):
    def make():
        (tmp_path / "spool").mkdir()
        (tmp_path / "spool" / "stop").touch()

    later = threading.Timer(0.3, make)
    later.start()
    assert main(["follow", str(tmp_path / "spool")]) == 0
    later.join()
    reported = capsys.readouterr().out
    assert f"waiting for {tmp_path / 'spool'}: no such directory yet" in reported
    assert "stopped: found the file 'stop', and no step is left" in reported


def test_following_ends_at_the_stop_file(tmp_path, capsys):
    (tmp_path / "stop").touch()
    assert main(["follow", str(tmp_path)]) == 0
    assert "stopped: found the file 'stop', and no step is left" in capsys.readouterr().out


@pytest.mark.slow
def test_a_step_that_pytest_cannot_check_ends_following_and_stays(tmp_path, capsys):
    step = write_dump(tmp_path / "step0" / "rank", SOFTMAX)
    assert main(["follow", str(tmp_path), "--", "--msprobe-device", "nothing"]) == 2
    reported = capsys.readouterr()
    assert (
        "pytest could not check this step: exit status 4; the step is kept. Last lines of its output:" in reported.err
    )
    assert "unknown device 'nothing'" in reported.err
    assert step.exists()
    assert not (tmp_path / "journal.jsonl").exists()


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_step_leaves_it_whole(tmp_path):
    step = write_dump(tmp_path / "step0" / "rank", SOFTMAX)
    before = sorted(step.parent.iterdir())
    code = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main())"
    words = [sys.executable, "-c", code, "follow", str(tmp_path), "--", "--msprobe-device", "cpu"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("following ")
    while not (tmp_path / ".follow" / "pytest.txt").exists():
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    reported, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    assert "stopped: Ctrl-C" in reported
    assert sorted(step.parent.iterdir()) == before


@pytest.mark.slow
def test_a_training_is_checked_while_it_runs_and_its_one_wrong_step_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(FAULTY_DEVICE, tmp_path)
    Path("spool").mkdir()
    training = subprocess.Popen([sys.executable, "-c", TRAINING])
    try:
        # The folder takes two steps, so the training waits until steps are checked.
        status = main(["follow", "spool", "--timeout", "200", "--", "--msprobe-device", "faulty"])
    finally:
        training.kill()
        training.wait()
    reported = capsys.readouterr().out
    assert status == 1, reported
    assert "steps checked: 4, 3 passed, 1 failed" in reported
    assert "dropped" not in reported
    assert [path.as_posix() for path in Path().glob("spool/**/dump.json")] == ["spool/failed/step2/rank/dump.json"]
    journal = read_journal(Path("spool/journal.jsonl"))
    failed = {entry.id for entry in journal.entries.values() if entry.outcome == "fail"}
    assert failed == {"spool/failed/step2/rank/dump.json::Functional.softmax.0.forward"}
    assert len({entry.id.partition("::")[0] for entry in journal.entries.values()}) == 4
