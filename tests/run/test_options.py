from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]


def header(pytester: pytest.Pytester, *arguments: str) -> str:
    result = pytester.runpytest_inprocess("--collect-only", "--msprobe-dump=dump.json", *arguments)
    assert result.ret == 0, result.stderr.str()
    return result.stdout.str()


@pytest.mark.parametrize(
    ("option", "value", "shown"),
    [
        ("device", "sim:0,3-5", "device sim:0,3,4,5"),
        ("device", "cpu", "device cpu"),
        ("policy", "msprobe-1.2", "policy msprobe-1.2"),
        ("seed", "17", "seed 17"),
    ],
)
def test_addopts_of_the_ini_file_say_the_same_as_the_command_line(
    pytester: pytest.Pytester, write_dump: Write, records: Json, option: str, value: str, shown: str
) -> None:
    write_dump(records)
    assert shown not in header(pytester)
    assert shown in header(pytester, f"--msprobe-{option}={value}")
    pytester.makeini(f"[pytest]\naddopts = --msprobe-{option}={value}")
    assert shown in header(pytester)


def test_the_command_line_wins_over_the_ini_file(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    pytester.makeini("[pytest]\naddopts = --msprobe-seed=4 --msprobe-device=npu")
    shown = header(pytester, "--msprobe-seed=5", "--msprobe-device=sim")
    assert "seed 5" in shown
    assert "device sim" in shown


def test_the_level_of_a_policy_is_shown(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    pytester.makeini("[pytest]\naddopts = --msprobe-policy=msprobe-26 --msprobe-level=L2")
    assert "policy msprobe-26 level L2" in header(pytester)
    assert "policy msprobe-26 level L0" in header(pytester, "--msprobe-level=L0")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("device", "tpu", "'tpu'; known are auto, npu, cuda, cpu, sim"),
        ("device", "sim:one", "'sim:one': indices are numbers and ranges such as sim:0,2,4-7"),
        ("device", "sim:5-2", "'sim:5-2': indices are numbers and ranges"),
        (
            "policy",
            "lenient",
            "'lenient': not a file, and not one of default, mindspore-1.2, msprobe-1.2, msprobe-26",
        ),
        ("policy", "msprobe26", "msprobe-1.2, msprobe-26; did you mean 'msprobe-26'?"),
        ("level", "L3", "'L3': not one of L0, L1, L2"),
        ("seed", "lucky", "'lucky': expected a whole number"),
        ("seed", "1.5", "'1.5': expected a whole number"),
        ("real-data", "sometimes", "'sometimes': not one of auto, never"),
        ("timeout", "soon", "'soon': expected a positive number of seconds"),
        ("timeout", "-1", "'-1': expected a positive number of seconds"),
        ("timeout", "nan", "'nan': expected a positive number of seconds"),
    ],
)
def test_an_unknown_value_is_one_usage_error_that_says_what_is_allowed(
    pytester: pytest.Pytester, write_dump: Write, records: Json, option: str, value: str, said: str
) -> None:
    write_dump(records)
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", f"--msprobe-{option}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert len([line for line in result.errlines if line]) == 1
    assert f"--msprobe-{option}" in result.stderr.str()
    assert said in result.stderr.str()
    assert "Traceback" not in result.stdout.str()


def test_a_file_cannot_be_the_folder_for_csv_files(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-csv=dump.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--msprobe-csv 'dump.json': not a directory" in result.stderr.str()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: 3", "rules: 3 is not a list of rules"),
        ("rules: [{standard: exactly}]", "unknown standard 'exactly'; known: absolute_threshold, "),
        ("rules: [{standard: ulp, limits: {max: 2}}]", "no limit 'max'; did you mean 'max_ulp'?"),
        ("rules: [{standard: ulp, output: [bfloat61]}]", "'bfloat61'; did you mean 'bfloat16'?"),
        ("rule: []", "unknown key 'rule'"),
        (": [", "not valid YAML"),
    ],
    ids=["rules", "standard", "limit", "dtype", "key", "yaml"],
)
def test_a_bad_policy_file_is_one_usage_error_with_the_place(
    pytester: pytest.Pytester, write_dump: Write, records: Json, text: str, said: str
) -> None:
    write_dump(records)
    (pytester.path / "mine.yaml").write_text(text)
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-policy=mine.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert f"--msprobe-policy: {pytester.path / 'mine.yaml'}" in result.stderr.str()
    assert said in result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str()


def test_a_level_for_a_policy_without_levels_is_a_usage_error(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-level=L1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "ERROR: --msprobe-level 'L1': policy default has no levels; choose one with levels, such as msprobe-26" in (
        result.stderr.str()
    )


def test_an_api_without_a_rule_fails_and_says_what_to_add(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any
) -> None:
    write_dump(records)
    (pytester.path / "mine.yaml").write_text("rules: [{standard: binary_consistency, output: [int]}]")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim", "--msprobe-policy=mine.yaml")
    assert checked.outcomes["Torch.index_select.0.forward"] == "passed"
    said = "policy 'mine' has no rule for softmax with torch.float32 output; add one without conditions"
    assert said in checked.cases["Functional.softmax.0.forward"].text


def test_a_policy_file_judges(pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any) -> None:
    name = "Functional.linear.0.forward"
    write_dump({name: records[name]})
    (pytester.path / "mine.yaml").write_text("rules: [{standard: absolute_threshold}]")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim", "--msprobe-policy=mine.yaml")
    assert checked.cases[name].properties["msprobe.standard"] == "absolute_threshold"


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("npu", "device 'npu': the package torch_npu is not installed"),
        ("cpu:1", "device cpu:1: index 1 does not exist; 1 visible, counted from 0"),
        ("sim:8", "device sim:8: index 8 does not exist; 8 visible, counted from 0"),
    ],
)
def test_a_device_that_cannot_be_used_is_one_usage_error_that_names_the_missing_piece(
    pytester: pytest.Pytester, write_dump: Write, records: Json, device: str, said: str
) -> None:
    write_dump(records)
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", f"--msprobe-device={device}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert said in result.stderr.str()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--msprobe-seed=lucky"], "--msprobe-seed 'lucky': expected a whole number"),
        pytest.param(
            ["--msprobe-device=cpu:7"],
            "device cpu:7: index 7 does not exist; 1 visible, counted from 0",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["--msprobe-level=L1", "--msprobe-device=sim"],
            "level 'L1': policy default has no levels",
            marks=(pytest.mark.slow, pytest.mark.nightly),
        ),
    ],
    ids=["option", "device", "policy"],
)
def test_under_xdist_a_usage_error_is_given_once_and_no_item_runs(
    pytester: pytest.Pytester, write_dump: Write, records: Json, arguments: list[str], said: str
) -> None:
    write_dump(records)
    result = pytester.runpytest_subprocess("-n2", "--msprobe-dump=dump.json", *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert (result.stdout.str() + result.stderr.str()).count(said) == 1
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert "passed" not in result.stdout.str()
    assert "failed" not in result.stdout.str()


def test_the_seed_decides_the_inputs_and_nothing_else_does(
    pytester: pytest.Pytester, write_dump: Write, records: Json, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device(
        """
with open("inputs.txt", "a") as file:
    if record == "Functional.softmax.0.forward":
        print(args[0].tolist(), file=file)
"""
    )

    def inputs(*arguments: str) -> str:
        path = pytester.path / "inputs.txt"
        path.unlink(missing_ok=True)
        result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-device=faulty", *arguments)
        assert result.ret == 0
        return path.read_text()

    first = inputs()
    assert inputs("-k", "softmax and forward") == first
    assert inputs("--msprobe-seed=0") == first
    assert inputs("--msprobe-seed=1") != first


@pytest.mark.slow
def test_addopts_of_the_ini_file_reach_xdist_workers(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any
) -> None:
    write_dump(records)
    pytester.makeini("[pytest]\naddopts = --msprobe-seed=9 --msprobe-device=sim:3 --msprobe-policy=msprobe-26")
    checked = check("--msprobe-dump=dump.json", "-n1", apart=True)
    properties = checked.cases["Functional.softmax.0.forward"].properties
    assert (properties["msprobe.seed"], properties["msprobe.device"]) == ("9", "sim:3")


def test_isolation_without_fork_and_xdist_is_a_usage_error_that_names_what_is_missing(
    pytester: pytest.Pytester, write_dump: Write, records: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(records)
    monkeypatch.delattr(os, "fork")
    result = pytester.runpytest_inprocess("-p", "no:xdist", "--msprobe-dump=dump.json", "--msprobe-isolate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --msprobe-isolate: this system forks no process that computes; install the extra xdist"]
    )
