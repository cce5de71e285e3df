"""msprobe's ``config.json`` in a check: its section ``run_ut`` is obeyed, and what it cannot say is reported."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]

SOFTMAX = {"Functional.softmax.0.forward", "Functional.softmax.0.backward"}

# As in msprobe's own file, of which users change a line.
PACKAGED = {
    "white_list": [], "black_list": [], "error_data_path": "./", "is_online": False, "nfs_path": "", "host": "",
    "port": -1, "rank_list": [], "tls_path": "",
}  # fmt: skip


@pytest.fixture
def checked(pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any) -> Callable[..., Any]:
    """Check three calls under a configuration."""

    def run(*arguments: str, section: str = "run_ut", **keys: Any) -> Any:
        write_dump(records)
        content = {"task": "run_ut", "dump_path": "./dump", section: PACKAGED | keys}
        (pytester.path / "config.json").write_text(json.dumps(content))
        return check("--msprobe-dump=dump.json", "--msprobe-config=config.json", *arguments)

    return run


def test_the_packaged_section_asks_for_nothing(checked: Any, records: Json) -> None:
    run = checked()
    assert set(run.cases) == set(records)
    run.result.stdout.fnmatch_lines(["msprobe: *config.json: no settings"])


@pytest.mark.parametrize("section", ["run_ut", "acc_check"])
def test_the_lists_choose_apis(section: str, checked: Any, records: Json) -> None:
    assert set(checked(section=section, white_list=["softmax"]).cases) == SOFTMAX
    assert set(checked(section=section, black_list=["softmax"]).cases) == set(records) - SOFTMAX
    both = checked(section=section, white_list=["softmax", "linear"], black_list=["linear"])
    assert set(both.cases) == SOFTMAX


def test_options_win_over_the_lists(checked: Any) -> None:
    run = checked("--msprobe-only=softmax", "--msprobe-skip=nothing", white_list=["linear"], black_list=["softmax"])
    assert set(run.cases) == SOFTMAX


def test_failing_cases_are_saved_below_error_data_path(
    pytester: pytest.Pytester, checked: Any, make_device: Callable[[str], None]
) -> None:
    make_device("result = result + 1")
    checked("--msprobe-device=faulty", error_data_path="errors", white_list=["index_select"])
    assert list((pytester.path / "errors").rglob("case.json"))


@pytest.mark.parametrize(("digits", "spelling"), [(0, "1"), (3, "1.000")])
def test_precision_is_the_number_of_decimals_in_the_tables(
    digits: int, spelling: str, pytester: pytest.Pytester, checked: Any
) -> None:
    checked("--msprobe-csv=tables", precision=digits, white_list=["index_select"])
    [details] = (pytester.path / "tables").glob("*details*.csv")
    with details.open(encoding="utf-8-sig", newline="") as file:
        [row] = csv.DictReader(file)
    assert row["双百指标"] in (spelling, " ")
    assert row["最大绝对误差"] == f"{0:.{digits}f}"


def test_what_has_no_meaning_here_is_reported(checked: Any) -> None:
    run = checked(host="10.0.0.1", quantization_api_list=["npu_quantize"])
    run.result.stdout.fnmatch_lines(["msprobe: *config.json: not used: host, quantization_api_list"])


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            {"run_ut": {"whitelist": []}},
            "run_ut.whitelist: not one of white_list, black_list, *; did you mean 'white_list'?",
        ),
        ({"run_ut": {"white_list": "conv2d"}}, "run_ut.white_list 'conv2d': expected a list of names of APIs *"),
        (
            {"acc_check": {"precision": 21}},
            "acc_check.precision 21: expected a number of decimal places *",
        ),
        ({"acc_check": {"precision": True}}, "acc_check.precision True: expected a number *"),
        ({"run_ut": {"error_data_path": 5}}, "run_ut.error_data_path 5: expected the path of a folder"),
        ({"run_ut": {"is_online": True}}, "run_ut.is_online: true is not supported"),
        ({"run_ut": 5}, "run_ut 5: expected an object"),
        ({"tensor": {}}, "no section run_ut or acc_check; --msprobe-config needs one"),
        ([], "no section run_ut or acc_check; --msprobe-config needs one"),
    ],
)
def test_a_wrong_file_is_a_usage_error_that_names_file_and_key(
    content: Any, problem: str, pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    (pytester.path / "config.json").write_text(json.dumps(content))
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-config=config.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*config.json: {problem}"])


@pytest.mark.parametrize(("content", "problem"), [(None, "cannot be read *"), ("{", "not valid JSON *")])
def test_a_file_that_cannot_be_read_is_a_usage_error(
    content: str | None, problem: str, pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    if content is not None:
        (pytester.path / "config.json").write_text(content)
    result = pytester.runpytest_inprocess("--msprobe-dump=dump.json", "--msprobe-config=config.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*config.json: {problem}"])


def test_a_run_that_is_no_check_refuses_it(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    (pytester.path / "config.json").write_text(json.dumps({"run_ut": {"white_list": ["softmax"]}}))
    compared = ("--msprobe-compare=dump.json", "--msprobe-golden=dump.json")
    result = pytester.runpytest_inprocess(*compared, "--msprobe-config=config.json")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--msprobe-config does not work with --msprobe-compare; remove --msprobe-config"])
