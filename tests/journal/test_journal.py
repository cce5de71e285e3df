from __future__ import annotations

import math
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards.verdict import Verdict
from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal.file import Entry, Header, JournalWriter, read_journal, read_outcomes
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, OutputResult, broken
from pytest_msprobe.results.skips import SkipReason
from tests.support.conftests import device_after_each_call

pytestmark = pytest.mark.slow

HEADER = Header(dumps={"dump.json": "abc"}, settings={"policy": "default", "seed": "0"})


def entry(name: str, verdict: Verdict) -> Entry:
    result = DirectionResult(
        name, verdict, (OutputResult("output.0", verdict, "torch.float32", "torch.float64", (2,)),)
    )
    return Entry(f"dump.json::{name}", result.outcome, result)


def write(path: Path, *entries: Entry, header: Header = HEADER) -> None:
    writer = JournalWriter(path, header)
    for one in entries:
        writer.write(one)
    writer.close()


numbers = st.floats(allow_nan=False)


@given(
    names=st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), unique=True, max_size=5),
    margin=numbers,
    metric=numbers,
)
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], margin: float, metric: float
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.jsonl"
    entries = [entry(name, Verdict("fail", "ulp", "why", {"u": metric}, {"u": 2.0}, margin)) for name in names]
    write(path, *entries)
    journal = read_journal(path)
    assert journal.header == HEADER
    assert list(journal.entries.values()) == entries


def test_nan_is_read_back_as_nan(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, entry("a", Verdict("fail", "ulp", metrics={"u": math.nan})))
    (read,) = read_journal(path).entries.values()
    assert math.isnan(read.result.verdict.metrics["u"])


@given(skip=st.sampled_from([None, SkipReason.NO_BASELINE]), number=numbers, lacks=st.booleans())
def test_what_a_baseline_needs_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, skip: SkipReason | None, number: float, lacks: bool
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.jsonl"
    verdict = Verdict("pass", "benchmark")
    output = OutputResult("out", verdict, own_bounds={"a": 1.0}, own_measured={"b": number}, lacks_baseline=lacks)
    extras = {"input_dtypes": ["torch.float32"], "scalars": True}
    result = DirectionResult("a", verdict, (output,), skip, extras=extras)
    write(path, Entry("dump.json::a", "pass", result))
    (read,) = read_journal(path).entries.values()
    assert read.result == result


def test_a_line_that_was_cut_short_is_dropped_and_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first, second = entry("a", Verdict("pass", "ulp")), entry("b", Verdict("pass", "ulp"))
    write(path, first, second)
    path.write_bytes(path.read_bytes()[:-9])
    assert list(read_journal(path).entries.values()) == [first]
    write(path, second)
    assert list(read_journal(path).entries.values()) == [first, second]


def test_the_last_line_about_an_item_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    again = entry("a", Verdict("pass", "ulp"))
    write(path, Entry("dump.json::a", "crash", broken("a", Breakdown.CRASH, "it died")), again)
    assert list(read_journal(path).entries.values()) == [again]


def test_a_second_writer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    writer = JournalWriter(path, HEADER)
    with pytest.raises(JournalError, match="another run is writing this journal"):
        JournalWriter(path, HEADER)
    writer.close()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "not a journal"),
        (b"hello\n", "not a journal"),
        (b'{"data": {}}\n', "not a journal"),
        (b'{"msprobe_journal": 99}\n', "written by a newer version"),
        (b'{"msprobe_journal": 0}\n', "written by an older version"),
        (b'{"msprobe_journal": 2}\n', "line 1 is no header"),
        (b'{"msprobe_journal": 2, "dumps": {}, "settings": {"\xb0": "x"}}\n', "not a journal"),
        (b'{"msprobe_journal": 2, "x": ' + b"[" * 5000 + b"]" * 5000 + b"}\n", "not a journal"),
        (b'{"msprobe_journal": 2, "dumps": {}, "settings": {}}\n{"a":' + b"[" * 5000 + b"\n", "line 2 is damaged"),
        (b'{"msprobe_journal": 2, "dumps": {}, "settings": {}}\n{"line": "item\xb0"}\n', "line 2 is damaged"),
    ],
)
def test_a_foreign_file_is_refused_with_its_name(tmp_path: Path, text: bytes, problem: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(text)
    with pytest.raises(JournalError, match=problem) as caught:
        read_journal(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"settings": {"policy": "default", "seed": "1"}}, "made with seed 0, this run has 1"),
        (
            {"settings": {"policy": "default", "seed": "0", "math_mode": "strict"}},
            r"made with math_mode \(default\), this run has strict",
        ),
        ({"dumps": {"dump.json": "abd"}}, "other dumps"),
    ],
)
def test_a_journal_about_another_check_is_refused(tmp_path: Path, changes: dict[str, object], problem: str) -> None:
    path = tmp_path / "run.jsonl"
    write(path, entry("a", Verdict("pass", "ulp")))
    other = {name: getattr(HEADER, name) for name in HEADER.__struct_fields__} | changes
    with pytest.raises(JournalError, match=problem):
        JournalWriter(path, Header(**other))


DUMP = Path(__file__).parents[1] / "data" / "dumps" / "lstm-mix" / "dump.json"

CRASHING_DEVICE = device_after_each_call(
    """
if record == "Functional.linear.1.forward" and not Path("repaired").exists():
    os._exit(1)
""",
    name="crashing",
)


def test_a_resumed_run_checks_what_is_missing_and_what_is_asked_for_again(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CRASHING_DEVICE)
    base = ["--msprobe-device", "crashing", "--msprobe-dump", str(DUMP), "-k", "linear or embedding"]
    pytester.runpytest_subprocess(*base, "-n", "1", "--msprobe-journal", "run.jsonl")
    first = read_journal(pytester.path / "run.jsonl").entries
    crashed = [item.result.record for item in first.values() if item.outcome == "crash"]
    assert crashed == ["Functional.linear.1.forward"]

    pytester.path.joinpath("repaired").touch()
    resumed = pytester.runpytest_subprocess(
        *base, "-n", "1", "--msprobe-resume", "run.jsonl", "--msprobe-rerun", "crash"
    )
    assert resumed.parseoutcomes()["passed"] == 1
    last = read_journal(pytester.path / "run.jsonl").entries
    assert last.keys() == first.keys()
    assert {item.outcome for item in last.values()} == {"pass", "skip"}


def test_a_run_that_was_killed_is_resumed_without_losing_or_doubling_an_item(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CRASHING_DEVICE)
    base = ["--msprobe-device", "crashing", "--msprobe-dump", str(DUMP), "-k", "linear or embedding"]
    pytester.runpytest_subprocess(*base, "--msprobe-journal", "run.jsonl")
    path = pytester.path / "run.jsonl"
    before = list(read_journal(path).entries)
    assert before
    pytester.path.joinpath("repaired").touch()
    pytester.runpytest_subprocess(*base, "--msprobe-resume", "run.jsonl")
    lines = [line for line in path.read_text().splitlines() if '"line":"item"' in line]
    assert len(lines) == len(read_journal(path).entries) > len(before)


@pytest.fixture
def resumed(pytester: pytest.Pytester, write_dump: Any, element: Any, forward: Any, make_device: Any) -> Path:
    """Resume a run in which one call was wrong and one unknown, and return the folder of its files."""
    make_device('if record == "Torch.abs.0.forward":\n    result += 1')
    names = ("Torch.abs.0", "Torch.no_such_api.0", "Torch.exp.0")
    write_dump({f"{name}.forward": forward(element(4, 8)) for name in names})
    base = ["--msprobe-device=faulty", "--msprobe-dump=dump.json", "--msprobe-csv=out"]
    first = pytester.runpytest_inprocess(*base, "-k", "abs or no_such_api", "--msprobe-journal=run.jsonl")
    assert first.ret == 1
    shutil.rmtree(pytester.path / "out")
    again = pytester.runpytest_inprocess(*base, "--msprobe-resume=run.jsonl", "--junitxml=report.xml")
    again.assert_outcomes(passed=1, deselected=2)
    return pytester.path


def test_the_junit_file_of_a_resumed_run_is_that_of_the_whole(resumed: Path) -> None:
    suite = ET.parse(resumed / "report.xml").getroot()[0]
    assert {key: suite.attrib[key] for key in ("tests", "failures", "skipped")} == {
        "tests": "3",
        "failures": "1",
        "skipped": "1",
    }
    cases = {case.attrib["name"]: case for case in suite}
    wrong, right = cases["Torch.abs.0.forward"], cases["Torch.exp.0.forward"]
    assert "Torch.abs.0.forward is wrong on faulty:0" in (wrong[1].text or "")
    assert "Run this item alone: pytest --msprobe-dump=" in (wrong[1].text or "")
    assert cases["Torch.no_such_api.0.forward"][1].attrib["message"].startswith("this torch has no such API")
    assert [{entry.attrib["name"] for entry in case.iter("property")} for case in (wrong, right)] == [
        {f"msprobe.{name}" for name in ("verdict", "standard", "margin", "device", "math_modes", "seed")}
    ] * 2
    assert wrong.attrib["classname"] == right.attrib["classname"]


def test_the_tables_of_a_resumed_run_are_those_of_the_whole(resumed: Path) -> None:
    (table,) = (resumed / "out").glob("accuracy_checking_result_*.csv")
    rows = [line.split(",")[:2] for line in table.read_text(encoding="utf-8-sig").splitlines()[1:]]
    assert rows == [["Torch.abs.0", "error"], ["Torch.no_such_api.0", "SKIP"], ["Torch.exp.0", "pass"]]


def test_starting_on_an_existing_journal_is_refused(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("run.jsonl").write_text("mine\n")
    result = pytester.runpytest_subprocess("--msprobe-dump", str(DUMP), "--msprobe-journal", "run.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *run.jsonl: exists; --msprobe-resume goes on with it*"])
    assert pytester.path.joinpath("run.jsonl").read_text() == "mine\n"


@given(cut=st.data())
def test_a_journal_cut_anywhere_gives_exactly_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, cut: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.jsonl"
    names = cut.draw(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), unique=True, max_size=4))
    written = [Entry(f"dump.json::{name}", "crash", broken(name, Breakdown.CRASH, name)) for name in names]
    write(path, *written)
    whole = path.read_bytes()
    size = cut.draw(st.integers(whole.index(b"\n") + 1, len(whole)))
    path.write_bytes(whole[:size])
    kept = written[: whole[:size].count(b"\n") - 1]
    assert list(read_journal(path).entries.values()) == kept
    assert read_outcomes(path) == ({one.id: "crash" for one in kept}, [])
    write(path, *written[len(kept) :])
    assert path.read_bytes() == whole


def test_a_journal_cut_at_every_byte_gives_exactly_its_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    entries = [Entry(name, "crash", broken(name, Breakdown.CRASH, "it died")) for name in "ab"]
    write(path, *entries)
    whole = path.read_bytes()
    header, *ends = (i + 1 for i, byte in enumerate(whole) if byte == ord("\n"))
    for size in reversed(range(header, len(whole) + 1)):
        os.truncate(path, size)
        assert list(read_journal(path).entries.values()) == entries[: sum(end <= size for end in ends)]
    for size in reversed(range(header - 1)):
        os.truncate(path, size)
        with pytest.raises(JournalError, match="not a journal"):
            read_journal(path)


FULL_DISK = """
import resource

def pytest_configure(config):
    if config.getoption("msprobe_journal"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["alone", "workers"])
def test_a_full_disk_ends_the_run_with_what_it_has(pytester: pytest.Pytester, workers: list[str]) -> None:
    pytester.makeconftest(FULL_DISK)
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "linear or embedding", "-p", "no:cacheprovider"]
    result = pytester.runpytest_subprocess(*base, *workers, "--msprobe-journal=run.jsonl")
    path = pytester.path / "run.jsonl"
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert f"{path}: the disk is full; make room, then go on with --msprobe-resume" in result.stdout.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert path.stat().st_size == 4000
    kept = read_journal(path).entries
    assert 0 < len(kept) < 8

    assert pytester.runpytest_subprocess(*base, *workers, "--msprobe-resume=run.jsonl").ret == 0
    assert len(read_journal(path).entries) == 8


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_without_room_for_a_header_is_one_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-dump={DUMP}", "--msprobe-journal=/dev/full")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: /dev/full: cannot be written: No space left on device"])


def test_a_folder_that_cannot_be_written_is_one_usage_error(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("file").touch()
    result = pytester.runpytest_inprocess(f"--msprobe-dump={DUMP}", "--msprobe-journal=file/run.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *file/run.jsonl: cannot be written: *"])


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["alone", "workers"])
def test_a_run_that_finds_everything_finished_ends_as_if_it_had_run(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "embedding", *workers]
    assert pytester.runpytest_subprocess(*base, "--msprobe-journal=run.jsonl").ret == 0
    again = pytester.runpytest_subprocess(*base, "--msprobe-resume=run.jsonl")
    assert again.ret == pytest.ExitCode.OK
    again.stdout.fnmatch_lines(
        ["0 API records: nothing left", "2 finished before: 2 passed", "2 in all: 2 passed"], consecutive=True
    )


@pytest.mark.parametrize("workers", [[], ["-n1"]], ids=["alone", "workers"])
def test_a_failure_that_finished_before_fails_the_resumed_run_until_it_is_run_again(
    pytester: pytest.Pytester, workers: list[str]
) -> None:
    pytester.makeconftest(CRASHING_DEVICE)
    base = ["--msprobe-device=crashing", f"--msprobe-dump={DUMP}", "-k", "linear", *workers]
    assert pytester.runpytest_subprocess(*base, "-n1", "--msprobe-journal=run.jsonl").ret == 1
    pytester.path.joinpath("repaired").touch()

    again = pytester.runpytest_subprocess(*base, "--msprobe-resume=run.jsonl")
    assert again.ret == pytest.ExitCode.TESTS_FAILED
    again.stdout.fnmatch_lines(
        ["* finished before: *1 failed* (1 crash); --msprobe-rerun crash checks these again"], consecutive=True
    )
    assert pytester.runpytest_subprocess(*base, "--msprobe-resume=run.jsonl", "--msprobe-rerun=crash").ret == 0


def test_what_finished_but_is_not_chosen_does_not_count(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}"]
    assert pytester.runpytest_inprocess(*base, "-k", "embedding", "--msprobe-journal=run.jsonl").ret == 0
    other = pytester.runpytest_inprocess(*base, "-k", "no_such_name", "--msprobe-resume=run.jsonl")
    assert other.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert "finished before" not in other.stdout.str()


def test_resuming_without_a_journal_is_one_usage_error(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-dump={DUMP}", "--msprobe-resume=run.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *run.jsonl: cannot be read: No such file or directory"])
    assert not pytester.path.joinpath("run.jsonl").exists()


def test_a_run_on_a_journal_in_use_is_one_usage_error(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "embedding"]
    pytester.runpytest_inprocess(*base, "--msprobe-journal=run.jsonl")
    path = pytester.path / "run.jsonl"
    before = path.read_bytes()
    writer = JournalWriter(path, read_journal(path).header)
    result = pytester.runpytest_inprocess(*base, "--msprobe-resume=run.jsonl")
    writer.close()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: *run.jsonl: another run is writing this journal; give each run and rank its own"]
    )
    assert path.read_bytes() == before


def test_a_name_that_is_no_text_is_written_as_text(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, entry("a", Verdict("fail", "record", os.fsdecode(b"\xff.pt: missing"), margin=math.inf)))
    (read,) = read_journal(path).entries.values()
    assert read.result.verdict.reason == "\\udcff.pt: missing"


def test_a_resumed_run_says_where_its_math_modes_are_others(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}"]
    pytester.runpytest_inprocess(*base, "-k", "embedding", "--msprobe-journal=run.jsonl")
    same = pytester.runpytest_inprocess(*base, "-k", "embedding or linear.1", "--msprobe-resume=run.jsonl")
    assert "other math modes" not in same.stdout.str()
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    other = pytester.runpytest_inprocess(*base, "-k", "embedding or linear", "--msprobe-resume=run.jsonl")
    other.stdout.fnmatch_lines(["*ran under other math modes; now: NVIDIA_TF32_OVERRIDE 1"])


def test_a_journal_made_in_another_rootdir_is_one_usage_error(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}", "-k", "embedding"]
    pytester.runpytest_inprocess(*base, f"--rootdir={DUMP.parent}", "--msprobe-journal=run.jsonl")
    other = pytester.runpytest_inprocess(*base, f"--rootdir={DUMP.parents[1]}", "--msprobe-resume=run.jsonl")
    assert other.ret == pytest.ExitCode.USAGE_ERROR
    other.stderr.fnmatch_lines([f"ERROR: *run.jsonl: has items such as 'dump.json::*--rootdir={DUMP.parent}"])
    same = pytester.runpytest_inprocess(*base, f"--rootdir={DUMP.parent}", "--msprobe-resume=run.jsonl")
    assert same.ret == 0


def test_to_list_what_is_left_is_no_run(pytester: pytest.Pytester) -> None:
    base = ["--msprobe-device=cpu", f"--msprobe-dump={DUMP}"]
    pytester.runpytest_inprocess(*base, "-k", "embedding", "--msprobe-journal=run.jsonl")
    listed = pytester.runpytest_inprocess(*base, "--msprobe-resume=run.jsonl", "--collect-only", "-q")
    assert "finished before" not in listed.stdout.str()
    assert "Functional.embedding.0.forward" not in listed.stdout.str()
