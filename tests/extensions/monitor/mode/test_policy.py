"""Policies for monitored training: which series must keep to which rule."""

from __future__ import annotations

import pytest

from msprobe_hooks.extensions.monitor.rules import DTYPES, NotFinite, Overflow, Turbulence, Underflow
from msprobe_hooks.extensions.monitor.series.reader import SeriesKey
from pytest_msprobe.errors import RulesError
from pytest_msprobe.extensions.monitor import options
from pytest_msprobe.extensions.monitor.judging import load_policy


def rules(policy, task, name, statistic):
    return [each.rule for each in policy.rules_for(SeriesKey(task, 0, name, None, statistic))]


def named(policy, task, name, statistic):
    return [rule.name for rule in rules(policy, task, name, statistic)]


def test_by_default_growth_is_judged_by_magnitudes_alone():
    policy = load_policy("default")
    assert named(policy, "grad_reduced", "a.weight", "norm") == ["nan", "exploding", "vanishing", "vanishing"]
    assert named(policy, "grad_reduced", "a.weight", "min") == ["nan"]
    assert named(policy, "param", "a.weight", "norm") == ["nan", "exploding", "stuck"]
    assert named(policy, "actv", "a.output", "zeros") == []


def test_by_default_infinity_means_nothing_in_what_a_module_is_given():
    policy = load_policy("default")
    assert rules(policy, "actv", "a.input", "min") == [NotFinite(inf=False)]
    assert rules(policy, "actv", "a.input_attn_mask", "min") == [NotFinite(inf=False)]
    assert rules(policy, "actv", "a.output", "min") == [NotFinite()]
    assert rules(policy, "actv_grad", "a.input", "min") == [NotFinite()]


def test_a_range_is_judged_where_the_dtype_is_known():
    policy = load_policy("default", dtype="float16")
    assert Overflow("float16") in rules(policy, "actv", "a.output", "max")
    assert Underflow("float16") in rules(policy, "grad_reduced", "a.weight", "norm")


def test_the_option_knows_every_dtype_whose_range_is_known():
    assert options.DTYPES == DTYPES


def test_msprobes_policies_are_its_rules():
    assert rules(load_policy("msprobe-1.2"), "actv", "a.output", "zeros") == [Turbulence(0.5)]
    assert rules(load_policy("msprobe-26"), "actv", "a.output", "zeros") == [NotFinite()]
    assert rules(load_policy("msprobe-26"), "actv", "a.output", "norm") == [Turbulence(0.5, 0.99), NotFinite()]


def test_a_file_says_which_series_a_rule_is_for(tmp_path):
    (tmp_path / "own.yaml").write_text(
        """
        rules:
          - {rule: nan, tasks: [actv], statistics: [max], names: ["actv/layers.*"], except: ["*.1.*"], outcome: warn}
        """
    )
    policy = load_policy(str(tmp_path / "own.yaml"))
    assert policy.rules[0].outcome == "warn"
    assert named(policy, "actv", "layers.0.output", "max") == ["nan"]
    for task, name, statistic in [
        ("actv_grad", "layers.0.output", "max"),
        ("actv", "layers.0.output", "min"),
        ("actv", "head.output", "max"),
        ("actv", "layers.1.output", "max"),
    ]:
        assert named(policy, task, name, statistic) == []


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("rules: 3", "expected one key, rules"),
        ("rules: []\nrule: []", "expected one key, rules"),
        ("rules: [nan]", r"rules\[0\]: is 'nan'; expected a mapping with 'rule'"),
        ("rules: [{rule: nans}]", r"rules\[0\]: unknown rule 'nans'; did you mean 'nan'\?"),
        ("rules: [{rule: nan, task: actv}]", "unknown key 'task'; did you mean 'tasks'. known are rule, limits, tasks"),
        ("rules: [{rule: nan, tasks: actv}]", "tasks is 'actv'; expected a list of texts"),
        ("rules: [{rule: nan, limits: 3}]", "limits is 3; expected a mapping"),
        ("rules: [{rule: nan, limits: {threshold: -1}}]", "nan: threshold is -1"),
        ("rules: [{rule: nan, outcome: pass}]", "outcome is 'pass'; expected fail or warn"),
        ("rules: [", "own.yaml"),
    ],
)
def test_a_wrong_policy_is_reported_with_what_is_allowed(tmp_path, text, reported):
    (tmp_path / "own.yaml").write_text(text)
    with pytest.raises(RulesError, match=reported):
        load_policy(str(tmp_path / "own.yaml"))


def test_dtypes_are_the_same_for_options_and_rules() -> None:
    assert tuple(DTYPES) == options.DTYPES
