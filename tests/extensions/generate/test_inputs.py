from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_standards.verdict import Verdict
from pytest_msprobe.errors import JournalError
from pytest_msprobe.extensions.generate.inputs import read_failures
from pytest_msprobe.journal import Entry, Header, JournalWriter
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.storage.files import fingerprint

RECORD = "Functional.softmax.0.forward"


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    path = tmp_path / "rank0" / "dump.json"
    path.parent.mkdir()
    path.write_text("the dump")
    return path


def journal(path: Path, dumps: dict[str, str], outcomes: dict[str, str], mode: str = "check") -> Path:
    writer = JournalWriter(path, Header(dumps=dumps, settings={"mode": mode, "seed": "7"}))
    for name, outcome in outcomes.items():
        verdict = Verdict(outcome if outcome in ("pass", "warn", "skip") else "fail", "ulp")
        writer.write(Entry(name, outcome, DirectionResult(name.partition("::")[2], verdict)))
    writer.close()
    return path


def test_what_failed_in_whichever_way_is_read_with_the_settings(tmp_path: Path, dump: Path) -> None:
    outcomes = {
        f"rank0/dump.json::{outcome}": outcome for outcome in ("pass", "warn", "fail", "skip", "crash", "timeout")
    }
    path = journal(tmp_path / "run.jsonl", {str(dump): fingerprint(dump)}, outcomes)
    failures = read_failures(path, dump)
    assert failures.records == {"fail", "crash", "timeout"}
    assert failures.settings["seed"] == "7"


def test_a_journal_of_another_dump_is_refused(tmp_path: Path, dump: Path) -> None:
    path = journal(tmp_path / "run.jsonl", {"/other/dump.json": "123"}, {})
    with pytest.raises(
        JournalError, match=r"not a journal of .*dump\.json, or the dump has changed since; its dumps are /other"
    ):
        read_failures(path, dump)


def test_a_dump_may_have_moved(tmp_path: Path, dump: Path) -> None:
    path = journal(tmp_path / "run.jsonl", {"/gone/dump.json": fingerprint(dump)}, {f"dump.json::{RECORD}": "fail"})
    assert read_failures(path, dump).records == {RECORD}


def test_of_several_dumps_only_this_ones_failures_count(tmp_path: Path, dump: Path) -> None:
    dumps = {"/run/dump.json": "1", "/run/rank0/dump.json": fingerprint(dump), "/run/rank1/dump.json": "2"}
    outcomes = {"dump.json::a": "fail", "rank0/dump.json::b": "fail", "/run/rank1/dump.json::c": "fail"}
    assert read_failures(journal(tmp_path / "run.jsonl", dumps, outcomes), dump).records == {"b"}


def test_a_journal_about_something_else_than_a_check_is_refused(tmp_path: Path, dump: Path) -> None:
    path = journal(tmp_path / "run.jsonl", {str(dump): fingerprint(dump)}, {}, mode="compare")
    with pytest.raises(JournalError, match=r"a journal of compare; pass a journal of pytest --msprobe-dump"):
        read_failures(path, dump)


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path, dump: Path) -> None:
    (tmp_path / "run.jsonl").write_text("{}\n")
    with pytest.raises(JournalError, match="not a journal"):
        read_failures(tmp_path / "run.jsonl", dump)
