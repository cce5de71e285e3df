"""Reasons to skip that a plugin's kind of run declares: users read them as they read our own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.dumps.dump_files import forward, write_dump

MODE = '''
"""Judges nothing."""

from msprobe_standards import Verdict
from pytest_msprobe.reports.summary import Summary
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.outcomes import BaseSkipReason
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.mode import JournalFacts


class ParitySkip(BaseSkipReason):
    ODD = "the number of letters is odd"
    EVEN = "the number of letters is even"


class ParityItem(DumpItem):
    def judge(self):
        why = ParitySkip.ODD if len(self.name) % 2 else ParitySkip.EVEN
        return DirectionResult(self.name, Verdict("skip", "", why.value), skip=why)


class ParityMode:
    name, flag, flag_help, shared_options = "parity", "--parity-of", "dump to look at", ()

    def add_options(self, group):
        pass

    def read_options(self, config, *, is_chosen):
        pass

    def needs_device(self, config):
        return False

    def open(self, config, dumps):
        pass

    def header(self, config):
        return []

    def reporters(self, config):
        return {"parity-summary": Summary(module_records=0, kind="records")}

    def journal_facts(self, config):
        return JournalFacts({})

    def items(self, file, dump):
        return [ParityItem.from_parent(file, name=name, dump=dump) for name in dump.records]

    def rerun_words(self, config):
        return []


def pytest_msprobe_register_modes(registry):
    registry.add(ParityMode())
'''

NAMES = ("Torch.mm.0.forward", "Torch.mm.1.forward", "Torch.mul.0.forward")
REASONS = ["2 skipped: the number of letters is even", "1 skipped: the number of letters is odd"]


@pytest.fixture
def dump(pytester: pytest.Pytester) -> Path:
    """Write a conftest.py with the mode, and a dump of three calls."""
    pytester.makeconftest(MODE)
    return write_dump(pytester.path, dict.fromkeys(NAMES, forward(output=[])))


@pytest.mark.parametrize(
    "way",
    [[], *(pytest.param(way, marks=pytest.mark.slow) for way in (["-n2"], ["--msprobe-isolate"]))],
    ids=" ".join,
)
def test_the_summary_counts_each_reason_by_its_text(pytester: pytest.Pytester, dump: Path, way: list[str]) -> None:
    result = pytester.runpytest_subprocess("--parity-of=dump.json", *way)
    result.assert_outcomes(skipped=3)
    result.stdout.fnmatch_lines(REASONS)


@pytest.mark.slow
def test_a_command_without_the_kind_of_run_reads_its_reasons_from_a_journal(
    pytester: pytest.Pytester, dump: Path
) -> None:
    pytester.runpytest_subprocess("--parity-of=dump.json", "--msprobe-journal=run.jsonl").assert_outcomes(skipped=3)
    (pytester.path / "conftest.py").unlink()
    program = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(sys.argv[1:]))"
    result = pytester.run(sys.executable, "-c", program, "report", "run.jsonl")
    result.stdout.fnmatch_lines(["| `the number of letters is even` | 2 |", "| `the number of letters is odd` | 1 |"])
