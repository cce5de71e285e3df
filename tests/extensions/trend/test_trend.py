"""How the margins of several runs move over time."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pytest_msprobe.commands.main import main
from pytest_msprobe.extensions.trend.margins import ApiTrend, make_trend
from pytest_msprobe.journal import read_journal
from pytest_msprobe.journal.shards import Part, whole_runs
from pytest_msprobe.results.outcomes import Breakdown, SkipReason
from pytest_msprobe.results.result import failed_without_result
from tests.support import journals

MUL = "Torch.mul.0.forward"
Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Write the journal of a run of a day in November: records with their margins, or results."""

    def write(day: int, *results: Any, settings: dict[str, str] | None = None, **margins: float) -> Path:
        judged = [
            journals.make_judged(f"Torch.{api}.0.forward", outcome(margin), margin) for api, margin in margins.items()
        ]
        header = msgspec.structs.replace(
            journals.HEADER,
            began=f"2026-11-{day:02d}T10:00:00+00:00",
            settings=settings or journals.HEADER.settings,
        )
        return journals.write_journal(tmp_path / f"day{day}.jsonl", *judged, *results, header=header)

    return write


def outcome(margin: float) -> str:
    return "fail" if margin > 1 else "pass"


def trend_of(*paths: Path) -> dict[str, ApiTrend]:
    return {api.name: api for api in make_trend(whole_runs([Part(path, read_journal(path)) for path in paths])).apis}


def changes(*paths: Path) -> dict[str, str]:
    return {name.split()[0].removeprefix("Torch."): api.change for name, api in trend_of(*paths).items()}


def shown(capsys: pytest.CaptureFixture[str], *words: str | Path) -> list[str]:
    assert main(["report", *map(str, words)]) == 0
    return capsys.readouterr().out.splitlines()


def refused(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    assert main(["report", *map(str, words)]) == 2
    return capsys.readouterr().err


def test_of_an_api_the_worst_record_counts_each_direction_alone(run: Run) -> None:
    records = [
        journals.make_judged("Torch.mul.0.forward", "pass", 0.2),
        journals.make_judged("Torch.mul.1.forward", "warn", 0.1),
        journals.make_judged("Torch.mul.0.backward", "pass", 0.9),
    ]
    found = trend_of(run(1, *records), run(2, *records))
    forward, backward = found["Torch.mul forward"].last, found["Torch.mul backward"].last
    assert forward is not None
    assert backward is not None
    assert (forward.record, forward.outcome, forward.margin, forward.judged) == ("Torch.mul.1.forward", "warn", 0.1, 2)
    assert (backward.record, backward.margin, backward.judged) == ("Torch.mul.0.backward", 0.9, 1)


def test_a_margin_that_grew_is_worse_and_one_that_shrank_better(run: Run) -> None:
    first, second = run(1, mul=0.2, exp=0.4, add=0.3, far=1e-5), run(2, mul=0.4, exp=0.2, add=0.31, far=9e-3)
    assert changes(first, second) == {"mul": "worse", "exp": "better", "add": "", "far": ""}
    assert trend_of(first, second)["Torch.mul forward"].factor == 2


def test_an_outcome_counts_before_a_margin(run: Run) -> None:
    warned = journals.make_judged(MUL, "warn", 0.1)
    assert changes(run(1, mul=0.9), run(2, warned)) == {"mul": "worse"}


def test_what_creeps_is_worse_than_in_the_first_run(run: Run) -> None:
    api = trend_of(run(1, mul=0.10), run(2, mul=0.12), run(3, mul=0.144))["Torch.mul forward"]
    assert (api.change, api.reference) == ("worse", 0)
    assert math.isclose(api.factor, 1.44)


def test_a_crash_is_worse_than_any_margin(run: Run) -> None:
    api = trend_of(run(1, mul=70.0), run(2, failed_without_result(MUL, Breakdown.CRASH, "died")))["Torch.mul forward"]
    assert api.change == "worse"
    assert api.last is not None
    assert api.last.outcome == "crash"


def test_apis_that_come_and_go_are_reported(run: Run) -> None:
    assert changes(run(1, mul=0.1), run(2, exp=0.1)) == {"exp": "new", "mul": "gone"}
    assert changes(run(3, mul=0.1), run(4, exp=0.1), run(5, exp=0.1))["mul"] == ""


def test_skipped_records_are_not_judged(run: Run) -> None:
    skipped = journals.skipped(MUL, SkipReason.UNKNOWN_API)
    assert changes(run(1, skipped, exp=0.1), run(2, skipped, exp=0.1)) == {"exp": ""}


def test_runs_are_in_the_order_of_their_dates(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    late, early = run(20, mul=0.4), run(3, mul=0.1)
    lines = shown(capsys, late, early, "--trend")
    assert [line.split()[1] for line in lines[1:3]] == ["2026-11-03", "2026-11-20"]
    assert lines[5].split() == ["worse", "Torch.mul", "forward", "0.1", "0.4", "x4", "since", "1", MUL]


def test_a_journal_without_a_date_has_that_of_its_file(tmp_path: Path) -> None:
    paths = [journals.write_journal(tmp_path / name, journals.make_judged(MUL, "pass")) for name in ("b", "a")]
    for path, when in zip(paths, (2_000_000_000, 1_000_000_000), strict=True):
        os.utime(path, (when, when))
    trend = make_trend(whole_runs([Part(path, read_journal(path)) for path in paths]))
    assert [run.began.year for run in trend.runs] == [2001, 2033]


def test_settings_that_differ_are_reported(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    journeys = run(1, settings={"seed": "5"}, mul=0.1), run(2, settings={"seed": "7"}, mul=0.1)
    assert "  note: seed differs, which may change margins: 5, 7" in shown(capsys, *journeys, "--trend")


def test_journals_of_watched_training_are_of_items(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    series = [journals.make_judged("grad_reduced/fc.weight/norm", "pass", margin) for margin in (0.1, 0.4)]
    settings = [{"mode": "monitor", f"files runs/{day}": "abc"} for day in (1, 2)]
    lines = shown(capsys, run(1, series[0], settings=settings[0]), run(2, series[1], settings=settings[1]), "--trend")
    assert lines[0] == "msprobe trend: 2 runs, 1 items; in the last run 1 worse"
    assert not any("differs" in line for line in lines)


def test_the_table_has_every_api_and_run(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    formula = journals.make_judged("=HYPERLINK()", "pass", 0.5)
    shown(capsys, run(1, formula, mul=0.2), run(2, mul=3.0), "--trend", "--csv", tmp_path / "tables")
    header, *rows = csv.reader((tmp_path / "tables" / "trend.csv").read_text().splitlines())
    assert header[:4] == ["api", "change", "factor", "record"]
    assert [title.rpartition(" ")[2] for title in header[4:]] == ["margin", "outcome"] * 2
    assert ["Torch.mul forward", "worse", "15.0", MUL, "0.2", "pass", "3.0", "fail"] in [
        [*row[:2], f"{float(row[2]):.1f}", *row[3:]] for row in rows[:1]
    ]
    assert rows[1] == ["'=HYPERLINK()", "gone", "", "", "0.5", "pass", "", ""]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--trend"], "--trend needs the journals of at least two runs"),
        (["--series", "a"], "--series has no effect without --trend; pass --trend and the journals of several runs"),
        (["--trend", "--junit", "x.xml"], "--junit does not work with --trend; remove one of them"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    run: Run, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    assert refused(capsys, run(1, mul=0.1), *words) == f"pytest-msprobe: {problem}\n"


def test_a_run_writes_its_date(pytester: pytest.Pytester, write_dump: Any, records: Any) -> None:
    dump = write_dump(records)
    pytester.inline_run("--msprobe-dump", str(dump), "--msprobe-device", "cpu", "--msprobe-journal", "run.jsonl")
    path = pytester.path / "run.jsonl"
    began = Part(path, read_journal(path)).began
    assert abs(began.timestamp() - (pytester.path / "run.jsonl").stat().st_mtime) < 3600


def test_a_small_margin_that_grew_from_nothing_comes_after_one_near_its_limit(run: Run) -> None:
    paths = run(1, small=0.0, large=0.3), run(2, small=0.0153, large=0.9)
    trend = make_trend(whole_runs([Part(path, read_journal(path)) for path in paths]))
    assert [api.name for api in trend.apis] == ["Torch.large forward", "Torch.small forward"]


def test_a_trend_takes_the_shards_of_a_run_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [
        journals.write_journal(
            tmp_path / f"{day}-{shard[0]}.jsonl",
            journals.make_judged(f"Torch.{name}.0.forward", "pass", margin),
            header=msgspec.structs.replace(journals.HEADER, shard=shard, began=f"2026-11-0{day}T10:00:00+00:00"),
        )
        for day, margin in ((1, 0.1), (2, 0.4))
        for shard, name in (("1/2", "mul"), ("2/2", "add"))
    ]
    assert main(["report", "--trend", *map(str, paths)]) == 0
    assert capsys.readouterr().out.startswith("msprobe trend: 2 runs, 2 APIs; in the last run 2 worse")
