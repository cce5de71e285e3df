"""How series of monitored training move from run to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.extensions.trend.margins import MOST_MOVED, series_trends
from pytest_msprobe.journal import Journal, read_journal
from tests.support.dumps.watched import norm, write_norms
from tests.support.journals import entry, make_judged, with_spread, write_journal


def journal(folder: Path, number: int, *results: object) -> Journal:
    return read_journal(write_journal(folder / f"{number}.jsonl", *results))  # type: ignore[arg-type]


def medians(journals: list[Journal], *patterns: str) -> dict[str, list[float | None]]:
    return {
        trend.name(has_several_ranks=False): [None if one is None else one.median for one in trend.spreads]
        for trend in series_trends(journals, patterns)
    }


def test_magnitudes_that_moved_most_come_first(tmp_path: Path) -> None:
    runs = [
        journal(
            tmp_path,
            number,
            with_spread("actv/slow/norm", 0, 1.0 + number / 10, 2),
            with_spread("actv/same/norm", 0, 1.0, 2),
            with_spread("actv/fast/norm", 0, 1.0 + number, 2),
            with_spread("actv/fast/mean", -1, 0.1 - number, 2),
            make_judged("actv/other/norm", "pass"),
        )
        for number in range(2)
    ]
    assert medians(runs) == {"actv/fast/norm": [1.0, 2.0], "actv/slow/norm": [1.0, 1.1]}


def test_series_that_are_named_are_shown_whatever_they_did(tmp_path: Path) -> None:
    first = journal(tmp_path, 0, with_spread("actv/a/mean", -1, 0.0, 2), with_spread("actv/b/norm", 0, 1.0, 2))
    second = journal(tmp_path, 1, with_spread("actv/b/norm", 0, 9.0, 9))
    assert medians([first, second], "actv/a/*") == {"actv/a/mean": [0.0, None]}


def test_no_more_are_shown_than_can_be_looked_at_and_none_twice(tmp_path: Path) -> None:
    runs = [
        journal(
            tmp_path,
            number,
            *(
                with_spread(f"{task}/{place}/norm", 0, 1.0 + place * number, 2)
                for place in range(20)
                for task in ("grad_unreduced", "grad_reduced")
            ),
        )
        for number in range(2)
    ]
    assert list(medians(runs)) == [f"grad_unreduced/{19 - place}/norm" for place in range(MOST_MOVED)]


def test_a_series_has_its_rank_where_another_rank_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(2):
        moved = (
            entry(with_spread("actv/a/norm", 0, 1.0 + rank * day, 9, rank), f"rank{rank}/actv_0-9.csv")
            for rank in range(2)
        )
        journal(tmp_path, day, *moved)
    assert main(["report", str(tmp_path / "0.jsonl"), str(tmp_path / "1.jsonl"), "--trend"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "actv/a/norm" in line]
    assert line.split("  ")[1] == "rank 1, actv/a/norm"


def test_a_journal_of_watched_training_holds_what_the_values_were(
    pytester: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    for day in range(2):
        write_norms(pytester.path / f"day{day}", {norm("a.weight"): [1.0, 3.0 + day, float("nan"), 4.0, 9.0]})
        pytester.inline_run(f"--msprobe-monitor=day{day}", "--msprobe-journal", f"{day}.jsonl")
    capsys.readouterr()
    assert main(["report", "0.jsonl", "1.jsonl", "--trend", "--series", "grad_reduced/*"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  median of a series, by run    1  2",
        "  grad_reduced/a.weight/norm  3.5  4",
    ]


def test_a_pattern_that_no_series_fits_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(write_journal(tmp_path / name, make_judged("Torch.mul.0.forward", "pass"))) for name in ("a", "b")]
    assert main(["report", *paths, "--trend", "--series", "actv/*"]) == 2
    assert "--series actv/*: no such series in these journals" in capsys.readouterr().err
