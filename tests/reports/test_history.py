"""What earlier runs made of the records of a page."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.journal import Header
from pytest_msprobe.reports.history import before
from pytest_msprobe.results.outcomes import SkipReason
from pytest_msprobe.results.result import DirectionResult
from tests.support.browser.pages import page_data
from tests.support.journals import HEADER, entry, make_judged, skipped, write_journal

MUL, ADD = "Torch.mul.0.forward", "Torch.add.0.forward"


def began(day: int, **fields: Any) -> Header:
    return msgspec.structs.replace(HEADER, began=f"2026-11-{day:02}T03:00:00+00:00", **fields)


def night(folder: Path, day: int, *results: Any, **fields: Any) -> Path:
    return write_journal(folder / f"night{day}.jsonl", *results, header=began(day, **fields))


def passed(margin: float = 0.1, record: str = MUL) -> DirectionResult:
    return make_judged(record, "pass", margin)


def failed(margin: float = 9.0, record: str = MUL) -> DirectionResult:
    return make_judged(record, "fail", margin)


def history(journal: Path, folder: Path) -> Any:
    page = folder / "page.html"
    assert main(["report", str(journal), "--html", str(page), "--history", str(folder)]) == 0
    return page_data(page)["history"]


def words(data: Any) -> list[tuple[str, str]]:
    names = data["words"]
    return [
        (names["before"][before], names["change"][change])
        for before, change in zip(data["before"], data["changes"], strict=True)
    ]


@pytest.mark.parametrize(
    ("now", "past", "said", "change"),
    [
        (passed(), [], "new", "new"),
        (failed(), [passed(), passed(), failed()], "passed 2x", "broken"),
        (failed(), [failed(), failed(), passed()], "failed 2x", ""),
        (passed(), [failed()], "failed 1x", "mended"),
        (passed(0.4), [passed(0.1)], "was 0.1", "worse"),
        (passed(0.1), [passed(0.4)], "was 0.4", "better"),
        (passed(0.11), [passed(0.1)], "passed 1x", ""),
        (failed(90.0), [failed(9.0)], "was 9", "worse"),
        (failed(math.inf), [failed(math.inf)], "failed 1x", ""),
        (skipped(MUL, SkipReason.NO_GRADIENT), [failed()], "failed 1x", ""),
        (failed(), [skipped(MUL, SkipReason.NO_GRADIENT)], "skipped 1x", ""),
    ],
)
def test_few_words_say_what_a_record_was(
    now: DirectionResult, past: list[DirectionResult], said: str, change: str
) -> None:
    found = before(now, past)
    assert (found.words, found.change) == (said, change)


def test_each_row_has_its_results_by_date_also_where_a_run_has_none(tmp_path: Path) -> None:
    night(tmp_path, 1, passed(0.1), passed(0.2, ADD))
    night(tmp_path, 2, passed(0.3))
    data = history(night(tmp_path, 3, failed(), passed(0.2, ADD)), tmp_path)

    assert [run["began"] for run in data["runs"]] == ["2026-11-01 03:00", "2026-11-02 03:00"]
    assert [result["margins"] for result in data["results"]] == [[0.1, 0.2], [0.3, None]]
    assert [result["outcomes"] for result in data["results"]] == [[0, 0], [0, -1]]
    assert words(data) == [("passed 2x", "broken"), ("passed 1x", "")]


def test_later_runs_and_the_run_itself_are_no_history(tmp_path: Path) -> None:
    own = night(tmp_path, 2, failed())
    night(tmp_path, 3, passed())
    assert history(own, tmp_path)["runs"] == []


def test_the_same_record_of_another_rank_is_another_item(tmp_path: Path) -> None:
    def of_rank(rank: int, result: DirectionResult) -> Any:
        return entry(result, f"run/step0/rank{rank}/dump.json")

    dumps = {f"/data/run/step0/rank{rank}/dump.json": f"{rank}" for rank in range(2)}
    night(tmp_path, 1, of_rank(0, passed()), of_rank(1, failed()), dumps=dumps)
    alone = night(tmp_path, 2, of_rank(1, failed()), dumps={"/data/run/step0/rank1/dump.json": "1"})
    assert words(history(alone, tmp_path)) == [("failed 1x", "")]

    both = night(tmp_path, 3, of_rank(0, passed()), of_rank(1, failed()), dumps=dumps)
    assert words(history(both, tmp_path)) == [("passed 1x", ""), ("failed 2x", "")]


def test_what_is_no_journal_of_such_a_run_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    night(tmp_path, 1, passed())
    night(tmp_path, 2, passed(), settings={"mode": "compare"})
    (tmp_path / "cut.jsonl").write_bytes((tmp_path / "night1.jsonl").read_bytes() + b'{"line":\n')
    (tmp_path / "foreign.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "folder.jsonl").mkdir()

    assert len(history(night(tmp_path, 5, passed()), tmp_path)["runs"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"history: 1 earlier run in {tmp_path}; left out: ")
    for name in (
        "foreign.jsonl (not a journal)",
        "night2.jsonl (of another kind of run, compare)",
        "cut.jsonl (line 4 is",
    ):
        assert name in said[0]


def test_the_newest_runs_count_and_shards_are_parts_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_msprobe.reports.history.MOST_RUNS", 2)
    night(tmp_path, 1, passed())
    night(tmp_path, 2, passed())
    for shard, result in enumerate((passed(), passed(0.2, ADD)), 3):
        night(tmp_path, shard, result, shard=f"{shard - 2}/2")
    data = history(night(tmp_path, 9, passed(), passed(0.2, ADD)), tmp_path)
    assert [run["began"] for run in data["runs"]] == ["2026-11-02 03:00", "2026-11-03 03:00"]
    assert [result["margins"] for result in data["results"]] == [[0.1, None], [0.1, 0.2]]


def test_a_run_is_linked_to_the_page_next_to_its_journal(tmp_path: Path) -> None:
    night(tmp_path, 1, passed())
    (tmp_path / "night1.html").write_text("")
    night(tmp_path, 2, passed())
    data = history(night(tmp_path, 3, passed()), tmp_path)
    assert [run["page"] for run in data["runs"]] == ["night1.html", ""]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--history", "."], "--history has no effect without --html; pass --html FILE"),
        (["--html", "page.html", "--history", "none"], "--history 'none': No such file or directory"),
        (["--html", "page.html", "--history", "night1.jsonl"], "--history 'night1.jsonl': Not a directory"),
    ],
)
def test_a_history_that_cannot_be_shown_is_one_clear_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(night(tmp_path, 1, passed())), *options]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
