"""``--msprobe-screening`` through pytest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_msprobe.extensions.screening.options import SCREENED_ABOVE, ScreeningOptions, screened_of
from pytest_msprobe.journal import read_journal
from pytest_msprobe.modes.check.options import CheckOptions
from tests.support.dumps.dump_files import forward, tensor
from tests.support.runs import Checked

MM, GRADIENT = "Torch.mm.0.forward", "Torch.mm.0.backward"
OPTIONS = ("--msprobe-device=cpu", "--msprobe-dump=dump.json")
ABOVE = "--msprobe-screening=0.01"
CLEARED = "2 cleared by screening: 0.201 billion operations were not computed again"


@pytest.fixture
def checked(write_dump: Any, check: Any) -> Callable[..., Checked]:
    def run(*arguments: str) -> Checked:
        factors = [tensor(256, 256, requires_grad=True), tensor(256, 512, requires_grad=True)]
        output = [tensor(256, 512, low=-30.0, high=30.0)]
        small = forward(tensor(8, 8), tensor(8, 8), output=[tensor(8, 8)])
        backward = {"input": [tensor(256, 512)], "output": factors}
        write_dump({MM: forward(*factors, output=output), GRADIENT: backward, "Torch.mm.1.forward": small})
        found: Checked = check(*OPTIONS, *arguments)
        return found

    return run


def test_the_summary_the_journal_and_junit_show_what_was_cleared(checked: Any, pytester: pytest.Pytester) -> None:
    run = checked(ABOVE, "--msprobe-journal=ours.jsonl")
    assert run.exit_code == 0
    assert CLEARED in run.output
    assert "residuals at most" not in run.output
    assert run.cases[MM].properties["msprobe.screened"].startswith(f"{MM} output.0: residuals at most 0.")
    assert "msprobe.screened" not in run.cases["Torch.mm.1.forward"].properties
    entries = read_journal(pytester.path / "ours.jsonl").entries.values()
    reported = {entry.result.record: screened_of(entry.result.extras) for entry in entries}
    assert [output.path for output in reported[GRADIENT]] == ["grad.args.0", "grad.args.1"]
    assert reported[MM][0].operations == 2 * 256 * 256 * 512


def test_more_words_show_residuals_and_how_much_was_sampled(checked: Any) -> None:
    output = checked(ABOVE, "-vv").output
    assert f"{GRADIENT} grad.args.1: residuals at most 0." in output
    assert "of 131072 elements computed exactly" in output


def test_nothing_small_is_screened_unasked_nor_where_exactness_is_asked_for(
    checked: Any, pytester: pytest.Pytester
) -> None:
    assert "cleared by" not in checked().output
    pytester.makeini("[pytest]\naddopts = --msprobe-screening=0.01\n")
    assert CLEARED in checked().output
    assert "cleared by" not in checked("--msprobe-screening=off").output


def test_products_of_ten_billion_operations_are_screened_unasked(
    write_dump: Any, check: Any, pytester: pytest.Pytester
) -> None:
    # Many processors take a hundred times as long in 16 bits.
    factors = [tensor(1300, 2048), tensor(2048, 1920)]
    write_dump({MM: forward(*factors, output=[tensor(1300, 1920, low=-90.0, high=90.0)])})
    assert "1 cleared by screening: 10.2 billion operations" in check(*OPTIONS).output
    assert "cleared by" not in check(*OPTIONS, "--msprobe-screening=off").output


@pytest.mark.parametrize(("above", "is_cleared"), [("never", False), ("0.01", True), ("5", False)])
def test_a_policy_says_from_where_on_an_api_is_screened(
    checked: Any, pytester: pytest.Pytester, above: str, is_cleared: bool
) -> None:
    rules = f"rules: [{{standard: benchmark}}]\nscreening: [{{apis: [mm], above: {above}}}]\n"
    (pytester.path / "mine.yaml").write_text(rules)
    output = checked("--msprobe-policy=mine.yaml", "--msprobe-screening=0.02").output
    assert ("cleared by" in output) is is_cleared
    assert "cleared by" not in checked("--msprobe-policy=mine.yaml", "--msprobe-screening=off").output


def test_what_runs_a_record_again_or_goes_on_with_a_journal_says_how_it_was_screened() -> None:
    exact, ours, plain = (CheckOptions(features=(ScreeningOptions(above),)) for above in (None, 0.5, SCREENED_ABOVE))
    assert [each.words() for each in (exact, ours, plain)] == [
        ["--msprobe-screening", "off"],
        ["--msprobe-screening", "0.5"],
        [],
    ]
    assert exact.settings() != ours.settings() != plain.settings() == {}


@pytest.mark.parametrize(
    "option",
    [
        "--msprobe-save-baseline=ours.msprobe",
        "--msprobe-repeat=2",
        "--msprobe-perturb=bit_noise",
        "--msprobe-csv=tables",
    ],
)
def test_what_needs_golden_results_is_exact(checked: Any, option: str) -> None:
    run = checked(ABOVE, option)
    assert "3 API records" in run.output
    assert "cleared by" not in run.output


def test_a_number_that_is_none_is_refused(checked: Any) -> None:
    run = checked("--msprobe-screening=much")
    assert run.exit_code == pytest.ExitCode.USAGE_ERROR
