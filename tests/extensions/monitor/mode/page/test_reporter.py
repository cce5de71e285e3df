"""``pytest --msprobe-monitor RUN --msprobe-html FILE``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.dumps.watched import norm, write_norms

RANKS = ["Dec03_21-34-40-rank0-1d6d9d83", "Dec03_21-34-40-rank1-2d6d9d83"]


@pytest.fixture
def run(pytester: pytest.Pytester) -> str:
    """Write a run of two ranks; on the second a gradient becomes NaN at step 3."""
    good = np.linspace(1.0, 2.0, 6)
    broken = np.where(np.arange(6) == 3, np.nan, good)
    write_norms(pytester.path / "runs" / RANKS[0], {norm("a.weight"): good, norm("b.weight"): good})
    write_norms(pytester.path / "runs" / RANKS[1], {norm("a.weight"): good, norm("b.weight"): broken})
    return "runs"


def data(path: Path) -> dict[str, Any]:
    """Return what the page's script reads."""
    text = path.read_text()
    found: dict[str, Any] = json.loads(text.partition('type="application/json">')[2].partition("</script>")[0])
    return found


def test_the_page_leads_with_where_it_went_wrong_first(pytester: pytest.Pytester, run: str) -> None:
    result = pytester.runpytest("--msprobe-monitor", run, "--msprobe-html", "out/page.html")
    result.stdout.fnmatch_lines(["msprobe report: *page.html"])
    page = data(pytester.path / "out" / "page.html")
    assert page["title"] == "runs"
    assert page["verdict"] == "1 of 4 series failed, first at step 3: rank 1, grad_reduced/b.weight/norm"
    assert page["ranks"] == ["rank 0", "rank 1"]
    first = page["findings"][0]
    assert page["tensors"][first["tensor"]]["name"] == "b.weight"
    assert [first[name] for name in ("rank", "statistic", "step", "outcome", "rule")] == [1, "norm", 3, "fail", "nan"]


def test_a_page_of_one_rank_names_none(pytester: pytest.Pytester, run: str) -> None:
    pytester.runpytest("--msprobe-monitor", f"{run}/{RANKS[0]}", "--msprobe-html", "page.html")
    page = data(pytester.path / "page.html")
    assert page["ranks"] == [""]
    assert page["findings"] == []
    assert page["verdict"] == "none of 2 series failed"


def test_a_resumed_run_has_the_findings_of_the_whole(pytester: pytest.Pytester, run: str) -> None:
    pytester.runpytest("--msprobe-monitor", run, "--msprobe-journal", "run.jsonl", "-k", "b.weight")
    pytester.runpytest("--msprobe-monitor", run, "--msprobe-resume", "run.jsonl", "--msprobe-html", "page.html")
    page = data(pytester.path / "page.html")
    assert len(page["findings"]) == 1
    assert page["about"].startswith("4 series, by policy default")


def test_a_series_that_cannot_be_read_is_left_out_with_a_note(pytester: pytest.Pytester, run: str) -> None:
    (file,) = (pytester.path / run / RANKS[0]).glob("grad_reduced*.csv")
    file.write_text(file.read_text().replace("a.weight,3,1.6", "a.weight,3,nan61799"))
    assert "nan61799" in file.read_text()
    result = pytester.runpytest("--msprobe-monitor", run, "--msprobe-html", "page.html")
    result.assert_outcomes(passed=2, failed=2)
    page = data(pytester.path / "page.html")
    assert [page["tensors"][each["tensor"]]["name"] for each in page["series"]].count("a.weight") == 1
    (note,) = (note for note in page["notes"] if "left out" in note)
    assert note.startswith("rank 0: a.weight is left out: ")
    assert note.endswith("expected a number, found 'nan61799'")


def test_a_run_of_which_no_series_can_be_read_has_no_page(pytester: pytest.Pytester, run: str) -> None:
    (file,) = (pytester.path / run / RANKS[0]).glob("grad_reduced*.csv")
    title, *rows = file.read_text().splitlines()
    file.write_text("\n".join([title, *(row.rpartition(",")[0] + ",x" for row in rows), ""]))
    result = pytester.runpytest("--msprobe-monitor", f"{run}/{RANKS[0]}", "--msprobe-html", "page.html")
    result.stdout.fnmatch_lines(["ERROR: msprobe report: *page.html: not written: *expected a number, found 'x'"])


def test_a_page_that_cannot_be_written_is_reported(pytester: pytest.Pytester, run: str) -> None:
    pytester.makefile(".txt", file="")
    result = pytester.runpytest("--msprobe-monitor", f"{run}/{RANKS[0]}", "--msprobe-html", "file.txt/page.html")
    result.stdout.fnmatch_lines(["ERROR: msprobe report: *page.html: cannot be written: *"])
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ["-omsprobe_html_exact=a.*"],
            "*msprobe_html_exact has no effect without --msprobe-monitor; pass --msprobe-monitor RUN",
        ),
        (
            ["--msprobe-monitor", "runs", "-omsprobe_html_exact=a.*"],
            "*has no effect without --msprobe-html; pass --msprobe-html FILE",
        ),
        (
            ["--msprobe-monitor", "runs", "--msprobe-html", "runs"],
            "*--msprobe-html 'runs': a directory; pass the name of a file",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(
    pytester: pytest.Pytester, run: str, words: list[str], problem: str
) -> None:
    result = pytester.runpytest(*words)
    result.stderr.fnmatch_lines([problem])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_pair_shows_both_runs_and_what_was_allowed(pytester: pytest.Pytester) -> None:
    start = np.linspace(1.0, 2.0, 40)
    apart = start * np.where(np.arange(40) < 30, 1, 1.5)
    names = [norm("a.weight"), norm("b.weight"), norm("c.weight")]
    write_norms(pytester.path / "golden" / RANKS[0], dict.fromkeys(names, start))
    write_norms(pytester.path / "target" / RANKS[0], {names[0]: start, names[1]: apart, names[2]: start})
    pytester.runpytest("--msprobe-monitor", "target", "--msprobe-golden", "golden", "--msprobe-html", "page.html")
    page = data(pytester.path / "page.html")
    assert page["pair"] is True
    assert page["verdict"] == "1 of 3 series failed, first at step 30: grad_reduced/b.weight/norm"
    assert page["about"] == "3 series, compared with golden: 1 failed, 0 warned"
    series = page["series"]
    reported = {page["tensors"][each["tensor"]]["name"]: each["compared"] is not None for each in series}
    assert reported == {"a.weight": False, "b.weight": True, "c.weight": False}


def test_without_findings_the_widest_gap_leads_with_what_was_allowed(pytester: pytest.Pytester) -> None:
    start = np.linspace(1.0, 2.0, 40)
    near = start * np.where(np.arange(40) == 17, 1 + 1e-5, 1)
    names = [norm("a.weight"), norm("b.weight")]
    write_norms(pytester.path / "golden" / RANKS[0], dict.fromkeys(names, start))
    write_norms(pytester.path / "target" / RANKS[0], {names[0]: start, names[1]: near})
    pytester.runpytest("--msprobe-monitor", "target", "--msprobe-golden", "golden", "--msprobe-html", "page.html")
    page = data(pytester.path / "page.html")
    assert page["verdict"] == "none of 2 series failed"
    widest = page["widest"]
    tensor = page["tensors"][page["series"][widest["series"]]["tensor"]]
    assert (tensor["name"], widest["step"]) == ("b.weight", 17)
    assert widest["words"].startswith("largest gap 1e-05 of its size, ")
    assert widest["words"].endswith(" allowed: step 17, grad_reduced/b.weight/norm")


def test_each_series_has_the_command_that_judges_it_alone(pytester: pytest.Pytester, run: str) -> None:
    pytester.runpytest("--msprobe-monitor", run, "--msprobe-html", "page.html")
    page = data(pytester.path / "page.html")
    ((_, words),) = page["commands"]
    series = words[1].replace("<dump>", page["files"][1]).replace("<record>", "grad_reduced/b.weight/norm")
    again = pytester.runpytest(series, *words[2:])
    again.assert_outcomes(failed=1)
