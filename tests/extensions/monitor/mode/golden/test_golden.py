"""``pytest --msprobe-monitor RUN --msprobe-golden RUN``: series as items next to those of a golden run."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer
from tests.support.dumps.drifting import STATISTICS, MemoryRun, trained
from tests.support.runs import check

GOLDEN = trained(2, 12)


def of(task: str, name: str) -> list[SeriesKey]:
    return [SeriesKey(task, 0, name, None, statistic) for statistic in STATISTICS]


def write(folder: Path, run: MemoryRun) -> str:
    """Write a run as CSV files and return its folder's name."""
    writer = open_writer("csv", folder, STATISTICS, ndigits=18, steps_per_file=1000)
    tensors = {(key.task, key.name): None for key in run.keys}
    series = {key: run.read(key) for key in run.keys}
    for place, step in enumerate(series[next(iter(series))].steps.tolist()):
        writer.add(
            Row(task, 0, name, step, None, tuple(series[key].values[place] for key in of(task, name)))
            for task, name in tensors
        )
    writer.close()
    return folder.name


def compare(pytester: pytest.Pytester, target: MemoryRun, golden: MemoryRun = GOLDEN, *options: str):
    runs = write(pytester.path / "target", target), write(pytester.path / "golden", golden)
    return check(pytester, "--msprobe-monitor", runs[0], "--msprobe-golden", runs[1], *options)


def test_the_summary_leads_with_the_step_and_the_first_tensor_that_is_off(pytester):
    faulty = GOLDEN.changed(slice(7, None), 1.001, *of("actv_grad", "layers.1.input"))
    faulty = faulty.changed(slice(7, None), 1.001, *of("grad_reduced", "layers.0.weight"))
    faulty = faulty.changed(slice(8, None), 1.01, *of("actv", "layers.0.output"))

    checked = compare(pytester, faulty)

    checked.result.stdout.fnmatch_lines(
        [
            "*monitored run, compared with golden*",
            "first at step 7: actv_grad/layers.1.input/norm",
            "  golden: norm is *, golden *: relative difference 1.0e-03 exceeds limit 2.4e-04",
        ]
    )
    assert checked.exit_code == 1


def test_the_failure_text_shows_both_runs_around_the_step(pytester):
    checked = compare(pytester, GOLDEN.changed(slice(7, None), 1.5, *of("actv_grad", "layers.1.input")))

    checked.result.stdout.fnmatch_lines(["*step*target*golden*apart*limit*", "*  6 *0.0e+00*", "*>    7 *3.3e-01*"])


def test_equal_runs_pass(pytester):
    checked = compare(pytester, GOLDEN)

    checked.result.stdout.fnmatch_lines(["no series left the tolerance"])
    assert checked.exit_code == 0


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        (of("actv", "layers.0.input"), "*the data differ: actv layers.0.input differs by 17 %*"),
        (
            of("param_origin", "layers.0.weight") + of("param_origin", "layers.1.weight"),
            "*the weights differ: param_origin layers.0.weight differs by 17 %*",
        ),
    ],
)
def test_runs_with_other_data_or_weights_are_refused(pytester, changed, reported):
    checked = compare(pytester, GOLDEN.changed(slice(None), 1.2, *changed))

    checked.result.stderr.fnmatch_lines([reported])
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR


def test_runs_without_a_common_step_are_refused(pytester):
    checked = compare(pytester, trained(2, 30).later(20), GOLDEN)

    checked.result.stderr.fnmatch_lines(["*no tensor has a step in common with the golden run *"])
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR


def test_the_summary_shows_that_a_run_has_other_steps(pytester):
    ended = MemoryRun({key: each[:8] for key, each in GOLDEN.values.items()})

    compare(pytester, ended, GOLDEN, "-q").result.stdout.fnmatch_lines(
        ["8 of the run's 8 steps (0 to 7) compared; the golden run has 12 (0 to 11)"]
    )


def test_a_tensor_that_one_run_lacks_fails_and_a_task_that_it_did_not_watch_is_skipped(pytester):
    lacking = MemoryRun({key: each for key, each in GOLDEN.values.items() if key.name != "layers.1.weight"})

    checked = compare(pytester, lacking.without("actv_grad"))

    checked.result.stdout.fnmatch_lines(
        [
            "  golden: norm only the golden run has it, and the target run has other param_origin series: *",
            "16 skipped: only one of the two runs has such series",
        ]
    )


def test_golden_reruns_show_a_smaller_fault(pytester):
    faulty = GOLDEN.changed(slice(7, None), 1 + 2e-5, *of("actv_grad", "layers.1.input"))
    rerun = write(pytester.path / "rerun", trained(2, 12, rounding=3e-8, seed=5))

    checked = compare(pytester, faulty, GOLDEN, "--msprobe-golden-rerun", rerun)

    checked.result.stdout.fnmatch_lines(["* and 1 golden rerun", "first at step 7: actv_grad/layers.1.input/norm"])


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        (
            ["--msprobe-golden-rerun", "target"],
            "*--msprobe-golden-rerun has no effect without --msprobe-golden; pass --msprobe-golden RUN",
        ),
        (["--msprobe-golden", "nowhere"], "*--msprobe-golden: *nowhere*"),
    ],
)
def test_wrong_options_are_named(pytester, options, reported):
    run = write(pytester.path / "target", GOLDEN)

    checked = check(pytester, "--msprobe-monitor", run, *options)

    checked.result.stderr.fnmatch_lines([reported])
    assert checked.exit_code == pytest.ExitCode.USAGE_ERROR
