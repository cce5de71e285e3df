"""A journal as a file: what is written is read back, wherever it was cut short."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_standards.verdict import Verdict
from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal import Entry, Header, JournalWriter, read_journal, read_outcomes
from pytest_msprobe.results.outcomes import Breakdown, SkipReason
from pytest_msprobe.results.result import DirectionResult, OutputResult, failed_without_result

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
    write(path, Entry("dump.json::a", "crash", failed_without_result("a", Breakdown.CRASH, "it died")), again)
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
        (b'{"msprobe_journal": 2}\n', "line 1 is not a header"),
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


@given(cut=st.data())
def test_a_journal_cut_anywhere_gives_exactly_its_whole_lines(
    tmp_path_factory: pytest.TempPathFactory, cut: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "run.jsonl"
    names = cut.draw(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1), unique=True, max_size=4))
    written = [
        Entry(f"dump.json::{name}", "crash", failed_without_result(name, Breakdown.CRASH, name)) for name in names
    ]
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
    entries = [Entry(name, "crash", failed_without_result(name, Breakdown.CRASH, "it died")) for name in "ab"]
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


def test_a_name_that_is_no_text_is_written_as_text(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, entry("a", Verdict("fail", "record", os.fsdecode(b"\xff.pt: missing"), margin=math.inf)))
    (read,) = read_journal(path).entries.values()
    assert read.result.verdict.reason == "\\udcff.pt: missing"
