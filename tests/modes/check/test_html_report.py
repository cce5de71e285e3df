"""``pytest --msprobe-dump PATH --msprobe-html FILE``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.browser.pages import page_data, words_of
from tests.support.dumps import dump_files as dumps
from tests.support.runs import Checked

_RECORDS = {
    f"Functional.softmax.{place}.forward": dumps.forward(dumps.tensor(6, 40), dim=dumps.value(-1)) for place in range(2)
}


@pytest.fixture
def without_last_column(make_device: Callable[[str], None]) -> None:
    """Register a device that drops the last column of the second softmax."""
    make_device("if record.startswith('Functional.softmax.1'): result = result.clone(); result[..., -1] = 0")


@pytest.mark.usefixtures("without_last_column")
def test_a_run_writes_its_page(pytester: pytest.Pytester, check: Callable[..., Checked]) -> None:
    path = dumps.write_dump(pytester.path, _RECORDS)

    found = check(f"--msprobe-dump={path}", "--msprobe-device=faulty", "--msprobe-html=out/page.html")

    assert f"msprobe report: {pytester.path / 'out/page.html'}" in found.output
    data = page_data(pytester.path / "out/page.html")
    assert words_of(data, "outcome") == ["pass", "fail"]
    assert data["details"]["1"]["outputs"][0]["map"]["place"] == "[:, 39]"
    assert data["runs"][0]["devices"][0].startswith("simulated card")
    assert words_of(data, "rerun")[0][:2] == ["pytest", "--msprobe-dump=<dump>::<record>"]
    assert words_of(data, "chosen")[0] == f"{path.relative_to(pytester.path)}::"


def test_a_run_that_judged_nothing_says_that_it_wrote_no_page(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): pass")

    result = pytester.runpytest_inprocess("--msprobe-html=page.html")

    result.stdout.fnmatch_lines(["msprobe report: */page.html not written: nothing was judged"])
    assert not (pytester.path / "page.html").exists()


def test_a_page_that_cannot_be_written_ends_the_run_as_incomplete(pytester: pytest.Pytester) -> None:
    path = dumps.write_dump(pytester.path, {name: body for name, body in _RECORDS.items() if ".0." in name})
    (pytester.path / "file").write_text("")

    result = pytester.runpytest_inprocess(
        f"--msprobe-dump={path}", "--msprobe-device=cpu", "--msprobe-html=file/page.html"
    )

    result.stdout.fnmatch_lines(["ERROR: msprobe report: */file/page.html: cannot be written: *"])
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR


def test_a_folder_is_no_page(pytester: pytest.Pytester) -> None:
    path: Path = dumps.write_dump(pytester.path, _RECORDS)

    result = pytester.runpytest_inprocess(f"--msprobe-dump={path}", "--msprobe-html=.")

    result.stderr.fnmatch_lines(["ERROR: --msprobe-html '.': a directory; pass the name of a file"])


@pytest.mark.usefixtures("without_last_column")
def test_a_page_shows_what_the_runs_before_made_of_each_record(
    pytester: pytest.Pytester, check: Callable[..., Checked]
) -> None:
    path = dumps.write_dump(pytester.path, _RECORDS)
    options = (f"--msprobe-dump={path}", "--msprobe-device=faulty")
    check(*options, "--msprobe-journal=runs/first.jsonl", "-k", "softmax.1")

    found = check(
        *options, "--msprobe-journal=runs/second.jsonl", "--msprobe-html=runs/second.html", "-omsprobe_history=runs"
    )

    assert f"msprobe history: 1 earlier run in {pytester.path / 'runs'}" in found.output
    history = page_data(pytester.path / "runs/second.html")["history"]
    assert [history["words"]["before"][place] for place in history["before"]] == ["new", "failed 1x"]


def test_a_folder_without_journals_is_said_and_no_error(pytester: pytest.Pytester) -> None:
    path = dumps.write_dump(pytester.path, {name: body for name, body in _RECORDS.items() if ".0." in name})
    options = (f"--msprobe-dump={path}", "--msprobe-device=cpu", "--msprobe-html=page.html")

    result = pytester.runpytest_inprocess(*options, f"-omsprobe_history={pytester.mkdir('runs')}")

    result.stdout.fnmatch_lines([f"msprobe history: no earlier runs in {pytester.path / 'runs'}"])
    assert result.ret == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-omsprobe_history=."], "msprobe_history has no effect without --msprobe-html; pass --msprobe-html FILE"),
        (["-omsprobe_history=none", "--msprobe-html=a.html"], "msprobe_history 'none': no such directory"),
        (["-omsprobe_history=dump.json", "--msprobe-html=a.html"], "msprobe_history 'dump.json': not a directory"),
        (
            ["--msprobe-compare=dump.json", "-omsprobe_history=."],
            "msprobe_history does not work with --msprobe-compare; remove msprobe_history",
        ),
    ],
)
def test_a_history_that_cannot_be_shown_is_a_usage_error(
    pytester: pytest.Pytester, options: list[str], said: str
) -> None:
    dumps.write_dump(pytester.path, _RECORDS)
    result = pytester.runpytest_inprocess(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {said}"])
