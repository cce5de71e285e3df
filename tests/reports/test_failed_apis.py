from __future__ import annotations

from msprobe_standards.verdict import Verdict
from pytest_msprobe.reports.failed_apis import FailedApis
from pytest_msprobe.results.outcomes import Breakdown
from pytest_msprobe.results.result import DirectionResult, OutputResult, failed_without_result, to_plain


def result(record: str, outcome: str, dtype: str = "torch.float32") -> DirectionResult:
    verdict = Verdict(outcome, "ulp", "off")  # type: ignore[arg-type]
    return DirectionResult(record, verdict, (OutputResult("output.0", verdict, target_dtype=dtype),))


def table(*results: DirectionResult) -> list[str]:
    failed = FailedApis()
    for one in results:
        failed.add(to_plain(one))
    return [*failed.lines()]


def test_failures_of_one_api_are_one_line_with_their_dtypes_and_directions() -> None:
    softmax = [result(f"Functional.softmax.{place}.forward", "fail", "torch.bfloat16") for place in range(3)]
    assert table(
        *softmax,
        result("Functional.softmax.0.backward", "fail"),
        result("Functional.softmax.1.backward", "pass"),
        result("Torch.exp.0.forward", "fail"),
        result("Torch.mm.0.forward", "pass"),
    ) == [
        "failed, by API:",
        "  4 of 5  Functional.softmax  bfloat16 3, float32 1  forward 3, backward 1",
        "  1 of 1  Torch.exp           float32                forward",
    ]


def test_the_heading_names_what_failed_where_that_is_not_apis() -> None:
    apis = FailedApis("tests")
    for name in ("a", "b"):
        apis.add(to_plain(result(name, "fail")))
    assert next(apis.lines()) == "failed tests:"


def test_a_single_failure_needs_no_table() -> None:
    assert table(result("Torch.exp.0.forward", "fail"), result("Torch.exp.1.forward", "pass")) == []


def test_what_has_no_outputs_and_what_is_no_api_counts_by_its_name() -> None:
    crashed = [
        failed_without_result(name, Breakdown.CRASH, "killed by signal 11")
        for name in ("no name", "Torch.exp.0.forward")
    ]
    assert table(*crashed) == ["failed, by API:", "  1 of 1  Torch.exp    forward", "  1 of 1  no name"]


def test_failures_of_other_kinds_are_listed_by_name() -> None:
    failed = FailedApis("series")
    for name in ("actv/0.output/norm", "actv/1.output/norm"):
        failed.add(to_plain(result(name, "fail")))
    assert [*failed.lines()] == [
        "failed series:",
        "  actv/0.output/norm  float32",
        "  actv/1.output/norm  float32",
    ]


def test_a_long_name_of_a_check_in_a_test_shows_its_api() -> None:
    failed = FailedApis("test checks")
    for api in ("Tensor.exp", "Torch.add"):
        failed.add(to_plain(result(f"{'a' * 80}.py::test_step::{api}.0.forward", "fail")))
    _, *rows = failed.lines()
    assert all(row.startswith("  ... aaa") and "  float32  " in row for row in rows)
    assert ["::Tensor.exp  " in rows[0], "::Torch.add  " in rows[1]] == [True, True]
