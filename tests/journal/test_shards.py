"""Which journals are one run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.errors import JournalError
from pytest_msprobe.journal import Journal, read_journal
from pytest_msprobe.journal.shards import Part, whole_runs
from tests.support.journals import HEADER, entry, make_judged, write_journal


def part(name: str, shard: str = "", began: str = "2026-11-01T10:00:00+00:00", **changes: object) -> Part:
    """Return a journal of one item that is called after the file."""
    header = msgspec.structs.replace(HEADER, shard=shard, began=began, **changes)
    one = entry(make_judged(f"Torch.{name}.0.forward", "pass"))
    return Part(Path(f"{name}.jsonl"), Journal(header, {one.id: one}))


def test_shards_of_one_run_are_put_together() -> None:
    (run,) = whole_runs([part("b", "2/2"), part("a", "1/2")])
    assert {each.result.record for each in run.journal.entries.values()} == {"Torch.a.0.forward", "Torch.b.0.forward"}
    assert (run.missing, run.doubled) == ((), {})
    assert run.journal.header.shard == ""


def test_a_shard_that_no_journal_is_of_is_named() -> None:
    (run,) = whole_runs([part("a", "1/4"), part("c", "3/4")])
    assert run.missing == ("2/4", "4/4")


def test_of_a_doubled_shard_the_latest_journal_counts_and_both_are_named() -> None:
    one = entry(make_judged("Torch.mul.0.forward", "fail"))
    again = entry(make_judged("Torch.mul.0.forward", "pass"))
    former = Part(Path("former.jsonl"), Journal(header("1/2", "2026-11-01T10:00:00+00:00"), {one.id: one}))
    later = Part(Path("later.jsonl"), Journal(header("1/2", "2026-11-01T11:00:00+00:00"), {one.id: again}))
    (run,) = whole_runs([later, part("b", "2/2"), former])
    assert run.doubled == {"1/2": (Path("former.jsonl"), Path("later.jsonl"))}
    assert run.journal.entries[one.id].outcome == "pass"


def header(shard: str, began: str) -> object:
    return msgspec.structs.replace(HEADER, shard=shard, began=began)


def test_arrays_that_ran_whole_twice_are_two_runs_by_date() -> None:
    dates = ("2026-11-02T10:00:00+00:00", "2026-11-01T10:00:00+00:00")
    runs = whole_runs([part(f"day{day}", f"{number}/2", began) for day, began in enumerate(dates) for number in (1, 2)])
    assert [run.began.day for run in runs] == [1, 2]
    assert all(run.missing == () and not run.doubled for run in runs)


@pytest.mark.parametrize(
    "other",
    [{"dumps": {"/data/run/dump.json": "def"}}, {"settings": {**HEADER.settings, "seed": "6"}}],
    ids=["another dump", "another seed"],
)
def test_shards_of_other_runs_stay_apart(other: dict[str, object]) -> None:
    runs = whole_runs([part("a", "1/2"), part("b", "2/2", **other)])
    assert [run.missing for run in runs] == [("2/2",), ("1/2",)]


def test_shards_of_arrays_of_other_sizes_stay_apart() -> None:
    assert [run.missing for run in whole_runs([part("a", "1/2"), part("b", "1/1")])] == [("2/2",), ()]


def test_journals_without_shards_are_runs_of_their_own() -> None:
    assert len(whole_runs([part("a"), part("b")])) == 2


@given(st.permutations(range(5)), st.sets(st.integers(0, 4), min_size=1))
def test_in_whatever_order_journals_come_the_run_is_the_same(order: list[int], there: set[int]) -> None:
    parts = [part(f"call{place}", f"{place + 1}/5") for place in order if place in there]
    (run,) = whole_runs(parts)
    assert set(run.missing) == {f"{place + 1}/5" for place in range(5) if place not in there}
    assert len(run.journal.entries) == len(there)


@pytest.mark.parametrize("shard", ["0/2", "1/0", "a/b", "1/", "1/99999999", "1"])
def test_a_header_with_an_impossible_shard_is_refused(tmp_path: Path, shard: str) -> None:
    path = write_journal(tmp_path / "run.jsonl", header=msgspec.structs.replace(HEADER, shard=shard))
    with pytest.raises(JournalError, match="line 1 is not a header"):
        read_journal(path)
