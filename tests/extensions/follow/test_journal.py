"""One journal of all steps."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.follow.follow import StepsJournal
from pytest_msprobe.journal import Header, Journal, read_journal, read_outcomes
from tests.support.journals import HEADER, START, entry, make_judged


def of_step(root: Path, number: int, outcome: str, header: Header = HEADER) -> Journal:
    """Return the journal of one record of a step."""
    dump = f"spool/step{number}/rank/dump.json"
    one = entry(make_judged("Torch.mm.0.forward", outcome), dump)
    whole = msgspec.structs.replace(header, root=str(root), dumps={str(root / dump): f"digest {number}"})
    return Journal(whole, {one.id: one}, [START])


def test_steps_are_dumps_of_one_journal_at_the_places_where_they_are_kept(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    journal = StepsJournal(tmp_path / "journal.jsonl")
    journal.add(of_step(tmp_path, 1, "pass"), spool / "step1" / "rank")
    journal.add(of_step(tmp_path, 2, "fail"), spool / "failed" / "step2" / "rank")
    journal.close()
    read = read_journal(journal.path)
    dumps = [spool / "step1" / "rank" / "dump.json", spool / "failed" / "step2" / "rank" / "dump.json"]
    assert read.header.dumps == {str(dumps[0]): "digest 1", str(dumps[1]): "digest 2"}
    assert [read.dump_of(each) for each in read.entries.values()] == dumps
    assert list(read_outcomes(journal.path)[0].values()) == ["pass", "fail"]
    assert len(read.starts) == 2


def test_a_folder_outside_of_the_root_is_named_by_its_whole_path(tmp_path: Path) -> None:
    journal = StepsJournal(tmp_path / "journal.jsonl")
    journal.add(of_step(tmp_path / "project", 1, "pass"), tmp_path / "elsewhere")
    journal.close()
    assert list(read_journal(journal.path).entries) == [f"{tmp_path}/elsewhere/dump.json::Torch.mm.0.forward"]


def test_another_watch_goes_on_with_the_journal_by_the_same_settings_alone(tmp_path: Path) -> None:
    for number in (1, 2):
        journal = StepsJournal(tmp_path / "journal.jsonl")
        journal.add(of_step(tmp_path, number, "pass"), tmp_path / f"step{number}")
        journal.close()
    assert len(read_journal(journal.path).entries) == 2
    other = msgspec.structs.replace(HEADER, settings={**HEADER.settings, "seed": "6"})
    with pytest.raises(JournalError, match="was made with seed 5, this run has 6"):
        StepsJournal(tmp_path / "journal.jsonl").add(of_step(tmp_path, 3, "pass", other), tmp_path)


def test_a_file_that_is_no_journal_is_refused_before_any_step(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(JournalError, match="not a journal"):
        StepsJournal(tmp_path / "notes.txt")


def test_a_link_that_takes_the_journals_place_after_the_start_is_not_written_through(tmp_path: Path) -> None:
    path, other = tmp_path / "journal.jsonl", tmp_path / "other.txt"
    journal = StepsJournal(path, refuses_links=True)
    path.symlink_to(other)
    with pytest.raises(JournalError, match="cannot be written"):
        journal.add(of_step(tmp_path, 1, "pass"), tmp_path / "spool" / "step1" / "rank")
    assert not other.exists()
