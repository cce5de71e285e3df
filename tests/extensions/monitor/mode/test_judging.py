"""What comes of a series, by rules that look at its run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from msprobe_hooks.extensions.monitor.series.reader import open_run
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer
from pytest_msprobe.extensions.monitor.judging import RuleJudge, judge_run, load_policy, resolution
from pytest_msprobe.extensions.monitor.series_names import MonitorSkip
from tests.support.dumps.watched import norm, write_norms

FROZEN = np.full(30, 2.5)
GRADIENT = 1 + 0.1 * np.sin(np.arange(30))
PARAMETER = norm("a.weight", "param_updated")


def judged(run, key):
    return RuleJudge(run, load_policy("default")).judge(key)


def test_a_parameter_that_never_moves_is_frozen_where_it_has_no_gradient(tmp_path):
    run = write_norms(tmp_path, {PARAMETER: FROZEN, norm("b.weight"): GRADIENT})
    assert judged(run, PARAMETER).verdict.outcome == "pass"


def test_a_parameter_that_never_moves_is_stuck_where_it_has_a_gradient(tmp_path):
    run = write_norms(tmp_path, {PARAMETER: FROZEN, norm("a.weight"): GRADIENT})
    verdict = judged(run, PARAMETER).verdict
    assert (verdict.outcome, verdict.standard) == ("fail", "stuck")


def test_a_parameter_that_moves_less_than_the_file_shows_is_not_stuck(tmp_path):
    slow = np.round(2.5 + 1e-6 * np.minimum(np.arange(30), 12), 6)
    run = write_norms(tmp_path, {PARAMETER: slow})
    assert judged(run, PARAMETER).verdict.outcome == "pass"


def test_a_weight_without_any_gradient_warns(tmp_path):
    run = write_norms(tmp_path, {norm("a.weight"): np.zeros(30), norm("a.bias"): np.zeros(30)})
    assert judged(run, norm("a.weight")).verdict.outcome == "warn"
    assert judged(run, norm("a.bias")).verdict.outcome == "pass"


#: As msprobe 26.2's TrainerMon wrote it: `id` is the value of a tensor without dimensions.
OF_MSPROBE = """\
vpp_stage,name,step,micro_step,norm,nans,id,shape,dtype
0,a.input_0,0,0,3.44910312,0,nan,"[2, 3]",torch.float32
0,a.input_1,0,0,1.0,0,1.0,[],torch.float32
0,a.input_0,1,0,1.77063407,0,nan,"[2, 3]",torch.float32
0,a.input_1,1,0,2.0,0,2.0,[],torch.float32
"""


def test_what_msprobe_did_not_measure_is_no_nan(tmp_path):
    (tmp_path / "actv_0-99.csv").write_text(OF_MSPROBE)
    policy = tmp_path / "policy.yaml"
    policy.write_text("rules: [{rule: nan}]")
    run = open_run(tmp_path)
    outcomes = {
        (key.name, key.statistic): RuleJudge(run, load_policy(str(policy))).judge(key).verdict.outcome
        for key in run.keys
        if key.statistic != "nans"
    }
    assert outcomes == {
        ("a.input_0", "norm"): "pass",
        ("a.input_0", "id"): "skip",
        ("a.input_1", "norm"): "pass",
        ("a.input_1", "id"): "pass",
    }


@pytest.mark.parametrize(("counted", "outcome"), [(math.nan, "skip"), (4.0, "fail")])
def test_nan_throughout_is_nothing_measured_where_not_even_nan_could_be_counted(tmp_path, counted, outcome):
    writer = open_writer("csv", tmp_path, ["norm", "nans"], ndigits=6, steps_per_file=10)
    writer.add(Row("actv", 0, "a.output", step, 0, (math.nan, counted)) for step in range(3))
    writer.close()
    result = judged(open_run(tmp_path), norm("a.output", "actv"))
    assert result.verdict.outcome == outcome
    assert result.skip is (MonitorSkip.NOT_MEASURED if outcome == "skip" else None)


def test_a_statistic_without_a_rule_is_skipped(tmp_path):
    writer = open_writer("csv", tmp_path, ["zeros"], ndigits=6, steps_per_file=10)
    writer.add([Row("actv", 0, "a.output", 0, 0, (1.0,))])
    writer.close()
    key = replace(norm("a.output", "actv"), statistic="zeros")
    assert judged(open_run(tmp_path), key).skip is MonitorSkip.NO_RULE


def test_steps_are_those_of_the_run_not_their_places(tmp_path):
    run = write_norms(tmp_path, {norm("a.weight"): [1.0, 1.0, math.nan]}, every=10)
    assert judged(run, norm("a.weight")).reason.startswith("nan at step 20")


def test_a_run_gives_what_fails_by_the_first_alarm(tmp_path):
    early, late = (np.where(np.arange(30) >= step, np.nan, 1.0) for step in (7, 20))
    write_norms(tmp_path, {norm("a.output", "actv"): late, norm("a.weight"): early, norm("b.weight"): GRADIENT})
    failed, warned = judge_run(tmp_path, load_policy("default"))
    assert [result.record for result in failed] == ["grad_reduced/a.weight/norm", "actv/a.output/norm"]
    assert warned == []


def test_of_a_run_that_stays_wrong_the_first_fifty_alarms_are_reported(tmp_path):
    run = write_norms(tmp_path, {norm("a.weight"): [1.0, *[math.nan] * 200]})
    result = judged(run, norm("a.weight"))
    assert result.verdict.reason.endswith("49 more alarms up to step 50; the search stopped there")


def test_the_resolution_is_what_all_values_are_multiples_of():
    assert resolution(np.array([0.123456, math.nan, 2.5])) == 1e-6
    assert resolution(np.array([1 / 3])) == 0
