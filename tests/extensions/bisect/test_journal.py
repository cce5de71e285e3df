"""The journal of a bisection."""

from __future__ import annotations

import msgspec
import pytest

from msprobe_hooks.extensions.fix.run_plan import Left
from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.bisect.command import BisectionJournal, Candidate, Header, Listed, Measured
from pytest_msprobe.extensions.bisect.search import Fixes

HEADER = Header(command="python train.py", directory="/somewhere", to="float32", metric="the exit status")
LISTED = Listed("nan", [Candidate("Torch.mm.0", "MainProcess"), Candidate("Torch.mm.0", "rank1")])
MEASURED = Measured(Fixes(0, 1), "0.1", ["File train.py, line 1, in f, \n x @ y"])


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = BisectionJournal(path, HEADER)
    journal.note(LISTED)
    journal.note(MEASURED)
    journal.close()
    return path


def resumed(path, header=HEADER):
    journal = BisectionJournal(path, header, is_resumed=True)
    journal.close()
    return journal


def test_what_was_noted_is_known_to_a_bisection_that_goes_on(path):
    journal = resumed(path)
    assert journal.listed == LISTED
    assert journal.measured(Fixes(0, 1)) == MEASURED
    assert journal.measured(Fixes(0, 1, is_inverted=True)) is None


@pytest.mark.parametrize("text", [None, ""])
def test_a_file_that_is_missing_or_empty_is_no_journal_to_go_on_with(tmp_path, text):
    path = tmp_path / "journal.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(JournalError, match="start with --journal FILE instead of --resume FILE"):
        resumed(path)
    assert path.exists() is (text is not None)


def test_nothing_is_cut_off_a_file_that_is_no_journal(tmp_path):
    path = tmp_path / "train.py"
    path.write_text("import torch\nmain()")
    with pytest.raises(JournalError, match="not a journal of a bisection"):
        resumed(path)
    assert path.read_text() == "import torch\nmain()"


def test_what_was_left_as_it_is_is_known_to_a_bisection_that_goes_on(path):
    left = [Left("Torch.mm", "in the other precision it raises RuntimeError")]
    journal = BisectionJournal(path, HEADER, is_resumed=True)
    journal.note(Measured(Fixes(0, 2), "0.1", [], left))
    journal.close()
    assert resumed(path).measured(Fixes(0, 2)).left == left


def test_a_journal_from_before_libraries_were_named_goes_on(path):
    lines = path.read_text().splitlines(keepends=True)
    assert '"custom_op_namespaces":[],' in lines[0] or ',"custom_op_namespaces":[]' in lines[0]
    path.write_text("".join([lines[0].replace(',"custom_op_namespaces":[]', ""), *lines[1:]]))
    assert resumed(path).listed == LISTED


def test_a_journal_with_other_libraries_is_refused(path):
    with pytest.raises(JournalError, match="was made with custom_op_namespaces none, not mylib"):
        resumed(path, msgspec.structs.replace(HEADER, custom_op_namespaces=["mylib"]))


def test_a_line_that_was_cut_off_is_run_again(path):
    path.write_bytes(path.read_bytes()[:-5])
    assert resumed(path).listed == LISTED
    assert resumed(path).measured(Fixes(0, 1)) is None


def test_a_journal_is_not_begun_twice(path):
    with pytest.raises(JournalError, match="file exists; continue it with --resume"):
        BisectionJournal(path, HEADER)


@pytest.mark.parametrize("other", ["command", "directory", "to", "metric"])
def test_a_journal_of_something_else_is_refused(path, other):
    with pytest.raises(JournalError, match=f"was made with {other}"):
        resumed(path, msgspec.structs.replace(HEADER, **{other: "other"}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [("hello\n", "not a journal of a bisection"), ('{"msprobe_journal":2}\n', "not a journal of a")],
)
def test_a_file_that_is_no_journal_is_refused(tmp_path, text, problem):
    path = tmp_path / "other.jsonl"
    path.write_text(text)
    with pytest.raises(JournalError, match=problem):
        resumed(path)


@pytest.mark.parametrize("damaged", [b"{]\n", b'{"line":"run","fixes":[0,1,false],"number":"one"}\n'])
def test_a_damaged_line_is_named(path, damaged):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:-1], damaged]))
    with pytest.raises(JournalError, match="line 3 is damaged"):
        resumed(path)


def test_a_journal_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="cannot be written"):
        BisectionJournal(tmp_path / "file" / "journal.jsonl", HEADER)
