"""Next to plugins that change the order, the number or the reports of items: ours keep ids, outcomes and numbers.

The plugins lie in a folder of their own, which ``make .neighbours/installed`` fills: installed next to pytest, each
would change every run of every test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.journal import read_journal
from tests.support.dumps.dump_files import Json
from tests.support.hosts.lost_workers import assert_one_is_lost, losing_one_of_two
from tests.support.nightly import nightly_but
from tests.support.requirements import require
from tests.support.runs import Case, Checked

NEIGHBOURS = Path(__file__).parents[2] / ".neighbours"
WRONG = "Functional.softmax.0.forward"
SUMMARY = "5 API records: 4 passed, 1 failed"

OURS = ("-p", "pytest_msprobe.plugin", "--msprobe-dump=dump.json", "--msprobe-device=faulty")

#: What loads each plugin and has it do something.
LOADING = {
    "allure": ["-p", "allure_pytest.plugin", "--alluredir=allure"],
    "asyncio": ["-p", "pytest_asyncio.plugin", "--asyncio-mode=auto"],
    "cov": ["-p", "pytest_cov.plugin", "--cov=msprobe_hooks.errors", "--cov-report="],
    "html": ["-p", "pytest_metadata.plugin", "-p", "pytest_html.plugin", "--html=report.html"],
    "instafail": ["-p", "pytest_instafail", "--instafail"],
    "json-report": ["-p", "pytest_metadata.plugin", "-p", "pytest_jsonreport.plugin", "--json-report"],
    "order": ["-p", "pytest_order.plugin", "--order-scope=session"],
    "randomly": ["-p", "pytest_randomly", "--randomly-seed=7"],
    "repeat": ["-p", "pytest_repeat", "--count=2"],
    "retry": ["-p", "pytest_retry.retry_plugin", "--retries=2"],
    "run-parallel": ["-p", "pytest_run_parallel.plugin", "--parallel-threads=2"],
    "split": ["-p", "pytest_split.plugin", "--splits=1", "--group=1"],
    "sugar": ["-p", "pytest_sugar", "--force-sugar"],
    "timeout": ["-p", "pytest_timeout", "--timeout=300"],
}

# sugar and instafail both write failures as they come, and refuse each other.
ALL = [word for neighbour, words in LOADING.items() if neighbour != "sugar" for word in words]
# By this name other plugins look for it.
XDIST = ("-p", "xdist")

Run = Callable[..., Checked]


@pytest.fixture
def run(
    write_dump: Callable[..., Path],
    records: Json,
    make_device: Callable[[str], None],
    check: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Check three calls, of which one is wrong in its forward direction, with ours and the plugins that are named.

    With plugins they run in a process of their own: what is imported of these, and warns, is not installed next to
    pytest.
    """
    require((NEIGHBOURS / "installed").exists(), "plugins of other projects, from make .neighbours/installed")
    write_dump(records)
    make_device(f"result = result + 1 if record == {WRONG!r} else result")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(NEIGHBOURS), prepend=":")

    def checked(*arguments: str) -> Checked:
        return check(*OURS, *arguments, apart=bool(arguments))

    return checked


def reported(cases: Mapping[str, Case]) -> dict[str, tuple[str, dict[str, str]]]:
    """Return each item's outcome and what was measured of it."""
    return {name: (case.outcome, case.properties) for name, case in cases.items()}


def assert_same(together: Checked, alone: Checked) -> None:
    assert alone.wrong == {WRONG}
    assert reported(together.cases) == reported(alone.cases)
    assert together.exit_code == alone.exit_code
    assert SUMMARY in together.output


@pytest.mark.slow
# The others run in `ALL`.
@pytest.mark.parametrize("neighbour", nightly_but(LOADING, "sugar"))
def test_ids_outcomes_and_numbers_stay(run: Run, neighbour: str) -> None:
    assert_same(run(*LOADING[neighbour]), run())


@pytest.mark.slow
def test_next_to_all_of_them_at_once_they_stay_and_stand_in_every_report(
    run: Run, pytester: pytest.Pytester, records: Json
) -> None:
    together = run(*ALL)
    assert_same(together, run())
    of_json = json.loads((pytester.path / ".report.json").read_text())["tests"]
    assert {test["nodeid"]: test["outcome"] for test in of_json} == {
        f"dump.json::{name}": "failed" if name == WRONG else "passed" for name in records
    }
    of_allure = [json.loads(path.read_text()) for path in (pytester.path / "allure").glob("*-result.json")]
    assert {(result["name"], result["status"]) for result in of_allure} == {
        (name, "failed" if name == WRONG else "passed") for name in records
    }
    of_html = (pytester.path / "report.html").read_text()
    assert f"dump.json::{WRONG}" in of_html
    assert "is wrong on faulty:0" in of_html


@pytest.mark.nightly
@pytest.mark.slow
def test_next_to_all_of_them_at_once_a_record_that_kills_its_worker_costs_itself(
    run: Run, make_device: Callable[[str], None], records: Json
) -> None:
    make_device(f"if record == {WRONG!r}: os._exit(7)")
    together = run(*ALL, *XDIST, "-n1")
    assert together.wrong == {WRONG}
    assert together.cases.keys() == records.keys()
    assert "failed (crash)" in together.cases[WRONG].text


@pytest.mark.slow
# The workers of pytest-retry start by -n alone.
# One that changes the order of items, and one that changes what is shown of them.
@pytest.mark.parametrize("neighbour", nightly_but([name for name in LOADING if name != "retry"], "randomly", "sugar"))
def test_a_run_goes_on_without_a_lost_worker(
    run: Run, pytester: pytest.Pytester, records: Json, neighbour: str
) -> None:
    del run
    workers = losing_one_of_two(pytester)
    ours = ("-p", "pytest_msprobe.plugin", *XDIST, "--msprobe-overflow=dump.json")
    assert_one_is_lost(pytester.runpytest_subprocess(*ours, *LOADING[neighbour], *workers), records)


def test_a_record_that_retry_runs_again_is_reported_by_its_last_attempt(
    run: Run,
    pytester: pytest.Pytester,
    make_device: Callable[[str], None],
    check: Any,
    records: Json,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del run
    monkeypatch.syspath_prepend(NEIGHBOURS)
    make_device(
        f"""
if record == {WRONG!r}:
    with Path("calls").open("a") as calls:
        calls.write("x")
    result = result + 1 if len(Path("calls").read_text()) < 3 else result
"""
    )
    checked = check(*OURS, *LOADING["retry"], "--msprobe-journal=run.jsonl")
    assert checked.exit_code == pytest.ExitCode.OK
    assert "5 API records: 5 passed" in checked.output
    entries = read_journal(pytester.path / "run.jsonl").entries
    assert [entry.outcome for entry in entries.values()] == ["pass"] * len(records)
    assert checked.cases[WRONG].properties["msprobe.verdict"] == "pass"


@pytest.mark.nightly
@pytest.mark.slow
# The default of our own, and one of those that keep items together.
@pytest.mark.parametrize(
    "dist", nightly_but(["load", "loadscope", "loadfile", "loadgroup", "worksteal"], "worksteal", "loadfile")
)
def test_the_same_holds_for_each_way_to_spread_items_over_workers(run: Run, dist: str) -> None:
    alone = run()
    spread = run("-p", "xdist.plugin", "-n2", f"--dist={dist}")
    assert spread.outcomes == alone.outcomes
    assert SUMMARY in spread.output


@pytest.mark.nightly
@pytest.mark.slow
def test_parts_of_split_are_the_run(run: Run, records: Json) -> None:
    first, second = (
        run("-p", "pytest_split.plugin", "--splits=2", f"--group={group}").outcomes.keys() for group in (1, 2)
    )
    assert first
    assert second
    assert sorted([*first, *second]) == sorted(records)
