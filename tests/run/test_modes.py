"""A kind of run that a plugin brings: nothing of the package knows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.dumps.dump_files import forward, write_dump

TOY = '''
"""Fails the records whose names are too long."""

import os
from collections import Counter

import pytest

from msprobe_standards import Verdict
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.mode import JournalFacts

limit_key = pytest.StashKey[int]()


class LengthItem(DumpItem):
    def judge(self):
        if "crash" in self.name:
            os.abort()
        limit = self.config.stash[limit_key]
        outcome = "pass" if len(self.name) <= limit else "fail"
        result = DirectionResult(self.name, Verdict(outcome, "length", f"{len(self.name)} characters"))
        return result.with_extra("process", os.getpid())


class LengthReport:
    def __init__(self):
        self.processes = Counter()

    def pytest_runtest_logreport(self, report):
        if hasattr(report, "msprobe"):
            self.processes[report.msprobe["extras"].get("process")] += 1

    def pytest_terminal_summary(self, terminalreporter):
        terminalreporter.line(f"toy: {sum(self.processes.values())} names in {len(self.processes)} processes")
        terminalreporter.line(f"toy: judged here: {os.getpid() in self.processes}")


class LengthMode:
    name = "length"
    flag = "--toy-length"
    flag_help = "dump to look at"
    shared_options = ("--msprobe-html",)

    def add_options(self, group):
        group.addoption("--toy-limit", type=int, default=40, metavar="N", help="longest name")

    def read_options(self, config, *, is_chosen):
        config.stash[limit_key] = config.getoption("toy_limit")

    def needs_device(self, config):
        return False

    def open(self, config, dumps):
        assert dumps

    def header(self, config):
        return [f"toy: at most {config.stash[limit_key]} characters"]

    def reporters(self, config):
        return {"toy-report": LengthReport()}

    def journal_facts(self, config):
        return JournalFacts({"limit": str(config.stash[limit_key])})

    def items(self, file, dump):
        return [LengthItem.from_parent(file, name=name, dump=dump) for name in dump.records]

    def rerun_words(self, config):
        return ["--toy-limit", str(config.stash[limit_key])]


def pytest_msprobe_register_modes(registry):
    registry.add(LengthMode())
'''

WORKERS = pytest.param(["-n2"], marks=pytest.mark.slow)
BOTH = pytest.param(["-n2", "--msprobe-isolate"], marks=pytest.mark.slow)

NAMES = ("Torch.mm.0.forward", "Torch.mm.0.backward", "Tensor.a_rather_long_name.12.forward", "Torch.mm.1.forward")


@pytest.fixture
def dump(pytester: pytest.Pytester) -> Path:
    """Write a conftest.py with the mode, and a dump with one name of more than 30 characters."""
    pytester.makeconftest(TOY)
    return write_dump(pytester.path, dict.fromkeys(NAMES, forward(output=[])))


@pytest.mark.parametrize("way", [[], WORKERS, ["--msprobe-isolate"], BOTH], ids=" ".join)
def test_its_items_run_in_every_way_with_its_option_header_and_report(
    pytester: pytest.Pytester, dump: Path, way: list[str]
) -> None:
    result = pytester.runpytest_subprocess("--toy-length=dump.json", "--toy-limit=30", *way)
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        [
            "toy: at most 30 characters",
            "*36 characters*",
            f"Run this item alone: pytest --toy-length={dump}::Tensor.a_rather_long_name.12.forward --toy-limit 30",
            "toy: 4 names in * processes",
            f"toy: judged here: {not way}",
        ]
    )


@pytest.mark.parametrize("way", [WORKERS, ["--msprobe-isolate"]], ids=" ".join)
def test_a_crash_costs_its_item_alone(pytester: pytest.Pytester, dump: Path, way: list[str]) -> None:
    write_dump(pytester.path, dict.fromkeys((*NAMES, "Torch.crash.0.forward"), forward(output=[])))
    result = pytester.runpytest_subprocess("--toy-length=dump.json", *way)
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*Torch.crash.0.forward failed (crash)*"])


@pytest.mark.parametrize("way", [[], WORKERS], ids=" ".join)
@pytest.mark.slow
def test_its_journal_is_resumed_under_the_same_settings_only(
    pytester: pytest.Pytester, dump: Path, way: list[str]
) -> None:
    first = pytester.runpytest_subprocess(
        f"--toy-length=dump.json::{NAMES[0]}", "--toy-limit=30", "--msprobe-journal=run.jsonl"
    )
    first.assert_outcomes(passed=1)
    header, *lines = map(json.loads, (pytester.path / "run.jsonl").read_text().splitlines())
    assert header["settings"] == {"mode": "length", "policy": "default", "limit": "30"}
    assert [line["id"] for line in lines] == [f"dump.json::{NAMES[0]}"]

    again = ("--toy-length=dump.json", "--msprobe-resume=run.jsonl", *way)
    other = pytester.runpytest_subprocess(*again, "--toy-limit=50")
    assert "was made with limit 30, this run has 50" in other.stderr.str()

    rest = pytester.runpytest_subprocess(*again, "--toy-limit=30")
    rest.assert_outcomes(passed=2, failed=1, deselected=0 if way else 1)
    finished = [json.loads(line)["id"] for line in (pytester.path / "run.jsonl").read_text().splitlines()[1:]]
    assert sorted(finished) == sorted(f"dump.json::{name}" for name in NAMES)


def test_a_plugin_given_on_the_command_line_brings_a_mode_as_well(pytester: pytest.Pytester, dump: Path) -> None:
    (pytester.path / "conftest.py").rename(pytester.path / "toy_mode.py")
    pytester.syspathinsert()
    result = pytester.runpytest_subprocess("-p", "toy_mode", "--toy-length", "dump.json")
    result.assert_outcomes(passed=4)


def test_one_run_is_of_one_mode(pytester: pytest.Pytester, dump: Path) -> None:
    result = pytester.runpytest_subprocess("--toy-length=dump.json", "--msprobe-dump=dump.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--msprobe-dump and --toy-length cannot be combined; pass one of them" in result.stderr.str()


@pytest.mark.slow
def test_its_options_are_in_the_help_and_its_name_is_its_own(pytester: pytest.Pytester, dump: Path) -> None:
    help_text = pytester.runpytest_subprocess("--help").stdout.str()
    assert "--toy-limit=N" in help_text.partition("msprobe: length:")[2]
    taken = TOY.replace('name = "length"', 'name = "check"')
    pytester.makeconftest(taken)
    result = pytester.runpytest_subprocess("--toy-length=dump.json")
    assert "mode 'check' is already registered" in result.stderr.str()


@pytest.mark.slow
def test_of_the_shared_options_it_takes_those_that_it_names(pytester: pytest.Pytester, dump: Path) -> None:
    pytester.runpytest_subprocess("--toy-length=dump.json", "--msprobe-html=page.html").assert_outcomes(passed=4)
    refused = pytester.runpytest_subprocess("--toy-length=dump.json", "--msprobe-golden=dump.json")
    refused.stderr.fnmatch_lines(["*--msprobe-golden does not work with --toy-length; use it with *"])
