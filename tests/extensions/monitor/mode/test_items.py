"""``pytest --msprobe-monitor RUN``: series as items."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.reader import Run
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer
from tests.support.dumps.watched import norm, write_norms
from tests.support.items import assert_has_no_function
from tests.support.runs import check

RANKS = ["Dec03_21-34-40-rank0-1d6d9d83", "Dec03_21-34-40-rank1-2d6d9d83"]
STEPS = 40


@pytest.fixture
def run(pytester: pytest.Pytester) -> str:
    """Write two ranks; on the second ``b.weight``'s gradient jumps at step 30, and is NaN from 35 on on both."""
    steady = 1 + 0.1 * np.sin(np.arange(STEPS))
    broken = np.where(np.arange(STEPS) >= 35, np.nan, steady)
    jumping = np.where(np.arange(STEPS) == 30, 1000.0, broken)
    for rank, gradient in zip(RANKS, (broken, jumping), strict=True):
        write_norms(
            pytester.path / "runs" / rank,
            {norm("a.output", "actv"): steady, norm("b.weight"): gradient, norm("a.weight"): steady},
        )
    return "runs"


def test_each_series_of_each_rank_is_an_item(pytester, run):
    checked = pytester.runpytest_inprocess("--msprobe-monitor", run, "--collect-only", "-q")
    names = ["actv/a.output/norm", "grad_reduced/b.weight/norm", "grad_reduced/a.weight/norm"]
    assert [line for line in checked.outlines if "::" in line] == [
        f"runs/{rank}/actv_0-999.csv::{name}" for rank in RANKS for name in names
    ]


def test_the_summary_leads_with_the_first_step_and_its_rank(pytester, run):
    checked = check(pytester, "--msprobe-monitor", run)
    checked.result.stdout.fnmatch_lines(
        [
            "first at step 30: rank 1, grad_reduced/b.weight/norm",
            "  exploding: norm is 1000; *",
            "then at step 35: rank 0, grad_reduced/b.weight/norm, nan",
            "6 series: 4 passed, 2 failed",
        ]
    )
    assert checked.exit_code == 1


def test_the_summary_shows_what_of_the_files_was_not_judged(pytester, run):
    for rank in RANKS:
        path = pytester.path / "runs" / rank / "actv_0-999.csv"
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join([*lines, *lines[-3:], lines[1][:-4]]))
    reported = [
        f"rank {rank}: {note}"
        for rank in (0, 1)
        for note in (
            "actv_0-999.csv: line 45 is cut off and left out",
            "actv: steps 37 to 39 were written more than once; the last values are used",
        )
    ]
    check(pytester, "--msprobe-monitor", run, "-q").result.stdout.fnmatch_lines(reported)
    compared = check(pytester, "--msprobe-monitor", f"runs/{RANKS[0]}", "--msprobe-golden", f"runs/{RANKS[1]}", "-q")
    compared.result.stdout.fnmatch_lines([reported[1], reported[0].replace("rank 0", "rank 0: golden run")])


def test_files_without_rows_are_no_run_that_broke_nothing(pytester):
    (pytester.path / "actv_0-9.csv").write_text("vpp_stage,name,step,micro_step,norm\n")
    result = pytester.runpytest_inprocess("--msprobe-monitor=.", "-q")
    result.stdout.fnmatch_lines(["no series was judged"])
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_within_a_step_the_first_that_is_computed_leads(pytester):
    steps = np.arange(30)
    late = np.where(steps == 20, math.inf, 1.0)
    series = [norm("a.output", "actv"), norm("b.output", "actv"), norm("b.output", "actv_grad"), norm("a.weight")]
    write_norms(pytester.path / RANKS[0], {series[0]: np.ones(30), **dict.fromkeys(series[1:], late)})
    checked = check(pytester, "--msprobe-monitor", RANKS[0])
    reported = [line for line in checked.result.outlines if line.startswith(("first at", "then at"))]
    assert reported == [
        "first at step 20: actv/b.output/norm",
        "then at step 20: actv_grad/b.output/norm, nan",
        "then at step 20: grad_reduced/a.weight/norm, nan",
    ]


def test_of_many_failures_the_first_twenty_are_listed_and_all_where_that_is_asked_for(pytester):
    steps = np.arange(60)
    names = {f"l{layer}.output": np.where(steps >= 50 - layer, math.nan, 1.0) for layer in range(30)}
    write_norms(pytester.path / RANKS[0], {norm(name, "actv"): values for name, values in names.items()})

    def listed(*options: str) -> list[str]:
        lines = pytester.runpytest_inprocess(f"--msprobe-monitor={RANKS[0]}", *options).outlines
        return [line.partition("::actv/")[2].partition("/")[0] for line in lines if line.startswith("FAILED ")]

    assert sorted(listed()) == sorted(f"l{layer}.output" for layer in range(10, 30))
    assert len(listed("-v")) == 30
    result = pytester.runpytest_inprocess(f"--msprobe-monitor={RANKS[0]}")
    result.assert_outcomes(failed=30)
    result.stdout.fnmatch_lines(["and 24 more series (-v lists all failures)"])


def test_a_failure_shows_the_step_what_was_allowed_the_neighbours_and_how_to_judge_it_again(pytester, run):
    checked = check(pytester, "--msprobe-monitor", run)
    # Where CI is set, pytest's last lines tell the whole failure a second time.
    (failure,) = {line for line in checked.output.split("\n") if "Run this item alone" in line and RANKS[1] in line}
    command = failure.partition(": pytest ")[2]
    checked.result.stdout.fnmatch_lines(
        [
            "exploding at step 30: norm is 1000; allowed: a magnitude up to 10*.*, 100 times the largest until 20 *",
            "    step 29  0.*",
            "  > step 30  1000",
            "    step 31  0.*",
            "5 more alarms, the last at step 39",
        ]
    )
    again = check(pytester, *command.split())
    assert again.outcomes == {"grad_reduced/b.weight/norm": "failed"}


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        (["-m", "norm and grad_reduced"], 4),
        (["-m", "not norm"], 0),
        (["-k", "b.weight and rank1"], 1),
        (["-k", "actv"], 2),
        ([f"--msprobe-monitor=runs/{RANKS[0]}::actv/a.output/norm"], 1),
    ],
)
def test_items_are_chosen_by_task_statistic_name_and_rank(pytester, run, chosen, count):
    flags = [] if "::" in chosen[0] else ["--msprobe-monitor", run]
    found = pytester.runpytest_inprocess(*flags, *chosen, "--collect-only", "-q", "--strict-markers")
    assert sum("::" in line for line in found.outlines) == count


@pytest.mark.slow
def test_two_workers_come_to_the_same(pytester, run):
    checked = check(pytester, "--msprobe-monitor", run, "-n2", apart=True)
    checked.result.stdout.fnmatch_lines(["first at step 30: rank 1, grad_reduced/b.weight/norm"])
    checked.result.assert_outcomes(passed=4, failed=2)


def test_a_resumed_run_reports_the_whole(pytester, run):
    check(pytester, "--msprobe-monitor", run, "--msprobe-journal=run.jsonl")
    lines = (pytester.path / "run.jsonl").read_text().splitlines(keepends=True)
    (pytester.path / "run.jsonl").write_text("".join(lines[:-1]))
    checked = check(pytester, "--msprobe-monitor", run, "--msprobe-resume=run.jsonl")
    checked.result.stdout.fnmatch_lines(
        ["first at step 30: rank 1, *", "1 series: 1 passed", "5 finished before: 3 passed, 2 failed*"]
    )
    assert len(checked.cases) == 3  # of both ranks, by name


def test_a_journal_of_a_run_that_went_on_is_not_resumed(pytester, run):
    check(pytester, "--msprobe-monitor", run, "--msprobe-journal=run.jsonl")
    (pytester.path / "runs" / RANKS[1] / "actv_1000-1999.csv").write_text("vpp_stage,name,step,micro_step,norm\n")
    assert "run.jsonl" in check(pytester, "--msprobe-monitor", run, "--msprobe-resume=run.jsonl").errors


def test_virtual_stages_and_micro_steps_are_distinguished(pytester):
    writer = open_writer("csv", pytester.path / RANKS[0], ["norm"], ndigits=6, steps_per_file=10)
    writer.add(Row("actv", stage, "a.input", 0, micro, (1.0,)) for stage in (0, 1) for micro in (0, 1))
    writer.close()
    assert list(check(pytester, "--msprobe-monitor", RANKS[0]).cases) == [
        "actv/a.input/norm",
        "actv/a.input:micro1/norm",
        "actv/vpp1:a.input/norm",
        "actv/vpp1:a.input:micro1/norm",
    ]


def test_alarms_are_written_as_msprobe_writes_them(pytester, run):
    check(pytester, "--msprobe-monitor", run, "--msprobe-json=anomalies")
    quiet, loud = (json.loads((pytester.path / f"anomalies/rank{rank}/anomaly.json").read_text()) for rank in (0, 1))
    assert len(quiet) == 5
    assert len(loud) == 6
    assert loud["0:b.weight/rank1/post_grad_norm_step_30_call_1"] == {
        "rank": 1,
        "step": 30,
        "micro_step": 0,
        "pp_stage": 0,
        "vpp_stage": 0,
        "call_id": 1,
        "tag_name": "0:b.weight/rank1/post_grad",
        "message": loud["0:b.weight/rank1/post_grad_norm_step_30_call_1"]["message"],
        "group_mates": [1],
    }


def test_a_run_without_alarms_replaces_the_alarms_of_an_earlier_one(pytester):
    write_norms(pytester.path / RANKS[0], {norm("a.weight"): [1.0, math.nan]})
    check(pytester, "--msprobe-monitor", RANKS[0], "--msprobe-json=anomalies")
    write_norms(pytester.path / "later" / RANKS[0], {norm("a.weight"): [1.0, 1.0]})
    check(pytester, "--msprobe-monitor=later", "--msprobe-json=anomalies")
    assert json.loads((pytester.path / "anomalies/rank0/anomaly.json").read_text()) == {}


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--msprobe-monitor=nothing"], "*nothing: no such folder; pass the folder that a monitored run wrote*"),
        (["--msprobe-monitor=runs", "-omsprobe_monitor_dtype=f16"], "*'f16': not one of float64, float32, *"),
        (["-omsprobe_monitor_dtype=float16"], "*has no effect without --msprobe-monitor; pass --msprobe-monitor RUN"),
        (
            ["--msprobe-monitor=runs", "--msprobe-policy=mindspore-1.2"],
            "*unknown policy 'mindspore-1.2'; did you mean 'msprobe-1.2'[?] known are default, *",
        ),
        (["--msprobe-monitor=runs", "--msprobe-json=runs/file"], "*--msprobe-json *"),
    ],
)
def test_what_cannot_be_used_is_one_error(pytester, run, arguments, reported):
    (pytester.path / "runs" / "file").write_text("")
    result = pytester.runpytest_inprocess(*arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([reported])
    assert "Traceback" not in result.stderr.str()


def test_one_step_of_a_recording_is_refused_with_what_to_pass(pytester):
    (pytester.path / "step0" / "rank0").mkdir(parents=True)
    (pytester.path / "step0" / "rank0" / "dump.json").write_text("{}")
    result = pytester.runpytest_inprocess("--msprobe-monitor=step0")
    result.stderr.fnmatch_lines(["*of a recording, pass the folder that holds step<N>/rank<N>/dump.json*"])


def test_a_file_that_shrinks_while_it_is_read_costs_its_series_and_no_more(pytester, run, monkeypatch):
    read = Run.read

    def failing(self, key):
        if key.name == "a.weight":
            raise MonitorError("actv_0-999.csv: it shrank")
        return read(self, key)

    monkeypatch.setattr(Run, "read", failing)
    checked = check(pytester, f"--msprobe-monitor=runs/{RANKS[0]}")
    assert checked.wrong == {"grad_reduced/a.weight/norm", "grad_reduced/b.weight/norm"}
    checked.result.stdout.fnmatch_lines(["actv_0-999.csv: it shrank"])


def test_items_answer_as_items_without_a_function(pytester, run):
    assert_has_no_function(pytester.inline_genitems("--msprobe-monitor", run)[0][0])
