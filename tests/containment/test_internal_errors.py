"""What no one expected to be raised is one failed record, in every count, file and way of running."""

from __future__ import annotations

import csv
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.containment import process
from pytest_msprobe.journal import read_journal
from tests.support.counts import FailureCounts, failure_counts
from tests.support.dumps.dump_files import forward, tensor, write_dump

Write = Callable[..., Path]
Json = dict[str, Any]
MakeDevice = Callable[[str], None]

ERRORS = """
class Own(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("str fails")

    __repr__ = __str__

class MuteBase(BaseException):
    __str__ = __repr__ = Mute.__str__

"""

RAISED = {
    "exits": "raise SystemExit(5)",
    "generator_exit": "raise GeneratorExit()",
    "own_kind": "raise Own('of its own')",
    "group": "raise BaseExceptionGroup('both', [KeyboardInterrupt(), ValueError('x')])",
    "mute": "raise Mute()",
    "mute_base": "raise MuteBase()",
    "not_utf8": "raise RuntimeError('\\ud800 bad \\x00 \\x1b[31m')",
    "not_utf8_base": "raise Own('\\ud800 bad')",
    "huge": "raise RuntimeError('x' * 50_000_000)",
}

# A kind of run whose items are judged without torch, so that processes start at once.
RAISING_MODE = """
import os

from msprobe_standards import Verdict
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.mode import JournalFacts
{errors}
class RaisingItem(DumpItem):
    def judge(self):
        kind = self.name.split(".")[1]
{deeds}
        return DirectionResult(self.name, Verdict("pass", "quiet", "nothing was raised"))

class RaisingMode:
    name, flag, flag_help = "raising", "--raising", "dump whose records raise"
    shared_options = ()

    def add_options(self, group): pass
    def read_options(self, config, *, is_chosen): pass
    def needs_device(self, config): return False
    def open(self, config, dumps): pass
    def header(self, config): return []
    def reporters(self, config): return {{"raising-summary": Summary(module_records=0)}}
    def journal_facts(self, config): return JournalFacts({{}})
    def items(self, file, dump): return [RaisingItem.from_parent(file, name=name, dump=dump) for name in dump.records]
    def rerun_words(self, config): return []

def pytest_msprobe_register_modes(registry):
    registry.add(RaisingMode())
"""


def make_raising_mode(pytester: pytest.Pytester, deeds: dict[str, str]) -> None:
    """Write the mode, and a dump with a record for each kind of deed and some that do nothing."""
    lines = [f"        if kind == {kind!r}: {deed}" for kind, deed in deeds.items()]
    pytester.makeconftest(RAISING_MODE.format(errors=ERRORS, deeds="\n".join(lines)))
    write_dump(pytester.path, {f"Torch.{kind}.0.forward": forward(output=[]) for kind in (*deeds, "mm", "add", "abs")})


JOURNAL = "--msprobe-journal=run.jsonl"
ISOLATED = ["--msprobe-isolate", "--msprobe-timeout=60"]
WAYS = [
    [],
    ISOLATED,
    *(
        pytest.param(way, marks=pytest.mark.slow)
        for way in (
            ["-n2"],
            ["-n2", "--dist=loadfile", *ISOLATED],
            ["-n2", "--dist=loadgroup"],
            ["-n1", "--dist=each"],
        )
    ),
]


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_all_counts_of_failures_agree_whatever_is_raised(pytester: pytest.Pytester, way: list[str]) -> None:
    contained = {"crash": "os._exit(3)"} if way else {}
    interrupted = {"interrupt": "raise KeyboardInterrupt()"} if "--msprobe-isolate" in way else {}
    deeds = RAISED | contained | interrupted
    make_raising_mode(pytester, deeds)
    run = partial(pytester.runpytest_subprocess, timeout=600) if way else pytester.runpytest_inprocess
    result = run("--raising=dump.json", JOURNAL, *way)
    result.assert_outcomes(failed=len(deeds), passed=3)
    assert failure_counts(result, pytester.path / "run.jsonl") == FailureCounts(*[len(deeds)] * 3)


def test_what_a_device_raises_is_in_all_reports(
    pytester: pytest.Pytester, check: Any, make_device: MakeDevice, records: Json, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {kind: f"Torch.abs.{number}.forward" for number, kind in enumerate(RAISED)}
    write_dump(pytester.path, {**{name: forward(tensor(4)) for name in names.values()}, **records})
    deeds = [f"if record == {names[kind]!r}: {deed}" for kind, deed in RAISED.items()]
    make_device("\n".join([*ERRORS.splitlines(), *deeds]))
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty", JOURNAL, "--msprobe-csv=tables")
    assert checked.wrong == set(names.values())
    assert failure_counts(checked.result, pytester.path / "run.jsonl") == FailureCounts(*[len(RAISED)] * 3)

    with next(pytester.path.glob("tables/accuracy_checking_result_*.csv")).open(encoding="utf-8-sig") as file:
        assert sum(row[1] == "error" for row in csv.reader(file)) == len(RAISED)
    main(["report", str(pytester.path / "run.jsonl")])
    assert f"{len(RAISED)} of {len(checked.cases)} records failed" in capsys.readouterr().out


def test_an_unexpected_error_has_an_outcome_of_its_own_and_says_where_it_was_raised(
    pytester: pytest.Pytester, check: Any
) -> None:
    make_raising_mode(pytester, {"exits": RAISED["exits"]})
    checked = check("--raising=dump.json", JOURNAL)
    name = "Torch.exits.0.forward"
    entry = read_journal(pytester.path / "run.jsonl").entries[f"dump.json::{name}"]
    assert entry.outcome == "error"
    assert entry.result.verdict.reason.startswith("SystemExit: 5")
    assert "failed without a verdict: 1 error" in checked.output
    assert f"{name} failed (error)" in checked.cases[name].text
    assert "conftest.py" in checked.cases[name].text
    assert checked.cases[name].properties["msprobe.breakdown"] == "error"


def test_an_item_that_another_plugin_fails_is_a_failed_record(pytester: pytest.Pytester) -> None:
    make_raising_mode(pytester, {})
    hook = "\n\ndef pytest_runtest_setup(item):\n    if 'add' in item.name: raise OSError('no licence')\n"
    with (pytester.path / "conftest.py").open("a") as file:
        file.write(hook)
    result = pytester.runpytest_inprocess("--raising=dump.json", JOURNAL)
    result.assert_outcomes(errors=1, passed=2)
    entry = read_journal(pytester.path / "run.jsonl").entries["dump.json::Torch.add.0.forward"]
    assert (entry.outcome, entry.result.verdict.reason) == ("error", "OSError: no licence")


def test_a_judge_that_skips_skips_its_record(pytester: pytest.Pytester) -> None:
    make_raising_mode(pytester, {"idle": "import pytest; pytest.skip('nothing to do')"})
    result = pytester.runpytest_inprocess("--raising=dump.json", JOURNAL, "-rs")
    result.assert_outcomes(skipped=1, passed=3)
    result.stdout.fnmatch_lines(["4 API records: 3 passed, 1 skipped", "SKIPPED*nothing to do"])


@pytest.mark.parametrize("way", [[], ["--msprobe-isolate"]], ids=" ".join)
@pytest.mark.slow
def test_an_item_that_ends_the_run_ends_it(pytester: pytest.Pytester, way: list[str]) -> None:
    make_raising_mode(pytester, {"over": "import pytest; pytest.exit('enough', 7)"})
    result = pytester.runpytest_subprocess("--raising=dump.json", *way)
    assert result.ret == 7
    result.stdout.fnmatch_lines(["*Exit: enough*"])


# A run in the background of a shell is started with the signal ignored.
PRESSED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); os.kill(os.getpid(), signal.SIGINT)"


@pytest.mark.slow
def test_ctrl_c_ends_a_run_that_is_not_isolated(pytester: pytest.Pytester) -> None:
    make_raising_mode(pytester, {"pressed": PRESSED})
    result = pytester.runpytest_subprocess("--raising=dump.json")
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.nightly
@pytest.mark.slow
def test_a_child_that_is_stopped_is_killed_and_the_run_goes_on(pytester: pytest.Pytester) -> None:
    make_raising_mode(pytester, {"stopped": "import signal; os.kill(os.getpid(), signal.SIGSTOP)"})
    run = partial(pytester.runpytest_subprocess, timeout=600)
    result = run("--raising=dump.json", JOURNAL, "--msprobe-isolate", "--msprobe-timeout=3")
    result.assert_outcomes(failed=1, passed=3)
    result.stdout.fnmatch_lines(
        ["*killed while stopped or in the system*", "*Torch.stopped.0.forward failed (timeout)*"]
    )


def test_a_process_that_cannot_be_killed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    # What waits for a driver cannot be had on demand: here the signal does not arrive.
    signals: list[int] = []
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as sleeper:
        with monkeypatch.context() as patched:
            patched.setattr(process.os, "kill", lambda pid, number: signals.append(number))
            patched.setattr(process, "_KILLED_SECONDS", 0.01)
            assert process.wait_for(sleeper.pid, 0.01) is None
        sleeper.kill()
    assert signals == [signal.SIGKILL]


@pytest.mark.slow
def test_a_process_that_an_item_forks_answers_for_no_other_item(pytester: pytest.Pytester) -> None:
    make_raising_mode(pytester, {"forks": "os.fork()", "raises": "raise ValueError('mine')"})
    run = partial(pytester.runpytest_subprocess, timeout=600)
    run("--raising=dump.json", JOURNAL, "--msprobe-isolate").assert_outcomes(failed=1, passed=4)
    for nodeid, entry in read_journal(pytester.path / "run.jsonl").entries.items():
        assert nodeid == f"dump.json::{entry.result.record}"
        assert entry.outcome == ("error" if "raises" in nodeid else "pass")


LEAVES = "pid = os.fork(); pid or __import__('time').sleep(600); open('left', 'w').write(str(pid))"


@pytest.mark.skipif(sys.platform != "linux", reason="looks for a process in /proc")
@pytest.mark.parametrize("way", [["--msprobe-isolate"], pytest.param(["-n1"], marks=pytest.mark.slow)], ids=" ".join)
def test_a_process_that_an_item_leaves_neither_hides_a_crash_nor_outlives_the_run(
    pytester: pytest.Pytester, way: list[str]
) -> None:
    make_raising_mode(pytester, {"leaves": LEAVES, "crash": "os._exit(3)"})
    # A reader of pytest's output waits as long as a process holds it.
    pytest_ = [sys.executable, "-m", "pytest", "--raising=dump.json", *way]
    done = subprocess.run(pytest_, cwd=pytester.path, capture_output=True, text=True, check=False, timeout=600)
    assert "the process that ran it exited with status 3" in done.stdout
    assert "1 failed, 4 passed" in done.stdout
    left = Path("/proc", (pytester.path / "left").read_text(), "stat")
    assert not left.exists() or left.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.slow
def test_a_worker_that_is_stopped_is_killed_and_the_run_goes_on(pytester: pytest.Pytester) -> None:
    make_raising_mode(pytester, {"stopped": "import signal; os.kill(os.getpid(), signal.SIGSTOP)"})
    run = partial(pytester.runpytest_subprocess, timeout=600)
    result = run("--raising=dump.json", JOURNAL, "-n1", "--msprobe-timeout=3")
    result.assert_outcomes(failed=1, passed=3)
    result.stdout.fnmatch_lines(
        ["*killed while stopped or in the system*", "*Torch.stopped.0.forward failed (timeout)*"]
    )


SWALLOWS = """
            import time
            for _ in range(100):
                if os.path.exists("said"):
                    break
                try:
                    time.sleep(1)
                except BaseException:
                    pass
"""


@pytest.mark.slow
def test_a_run_says_which_item_it_cannot_end(pytester: pytest.Pytester) -> None:
    make_raising_mode(pytester, {"swallows": SWALLOWS})
    command = [sys.executable, "-m", "pytest", "--raising=dump.json", "--msprobe-timeout=0.5"]
    with subprocess.Popen(
        command, cwd=pytester.path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        said = next((line for line in running.stderr if line.strip()), "")
        (pytester.path / "said").touch()
        output = running.stdout.read()
    assert said.startswith("msprobe: Torch.swallows.0.forward is still running after its limit")
    assert f"kill -9 {running.pid}" in said
    # What it computed after it was interrupted is no verdict.
    assert "Torch.swallows.0.forward failed (timeout)" in output
