from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.journal import read_journal

pytestmark = pytest.mark.slow

Write = Callable[..., Path]
Json = dict[str, Any]


@pytest.fixture
def many(records: Json) -> Json:
    """Return the shared calls ten times over."""
    repeated = {}
    for i in range(10):
        for name, body in records.items():
            repeated[name.replace(".0.", f".{i}.")] = body
    return repeated


def test_two_workers_give_the_ids_verdicts_and_numbers_of_one(
    write_dump: Write, many: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(many)
    make_device("if record in ('Torch.index_select.3.forward', 'Functional.linear.5.forward'): result = result + 1")
    arguments = ("--msprobe-dump=dump.json", "--msprobe-device=faulty")
    alone = check(*arguments, apart=True)
    spread = check(*arguments, "-n2", apart=True)
    assert alone.exit_code == spread.exit_code == pytest.ExitCode.TESTS_FAILED
    assert alone.outcomes == spread.outcomes
    assert alone.wrong == {"Torch.index_select.3.forward", "Functional.linear.5.forward"}
    for name, case in alone.cases.items():
        ours, theirs = dict(case.properties), dict(spread.cases[name].properties)
        assert ours.pop("msprobe.device") == "faulty:0"
        assert theirs.pop("msprobe.device") in ("faulty:0", "faulty:1")
        # Two threads add up in another order than one.
        margins = float(ours.pop("msprobe.margin")), float(theirs.pop("msprobe.margin"))
        assert math.isclose(*margins, rel_tol=1e-3, abs_tol=1e-2)
        assert ours == theirs
    assert {case.properties["msprobe.device"] for case in spread.cases.values()} == {"faulty:0", "faulty:1"}
    # A failure's text is the same, but for the line that names the worker.
    for name in alone.wrong:
        assert alone.cases[name].text.splitlines()[0] in spread.cases[name].text


def test_more_workers_than_items_are_said_to_cost_their_start(write_dump: Write, records: Json, check: Any) -> None:
    write_dump(records)
    arguments = ("--msprobe-dump=dump.json", "--msprobe-device=cpu", "-n3", "-k")
    few = check(*arguments, "linear.0.forward", apart=True)
    few.result.stdout.fnmatch_lines(["3 workers were started for 1 item: each costs its start; use -n 1"])
    check(*arguments, "linear or softmax or gelu or sum", apart=True).result.stdout.no_fnmatch_line("*workers were *")


HEARING = """
def pytest_configure(config):
    global hears
    hears = not hasattr(config, "workerinput")

def pytest_runtest_makereport(item, call):
    item.user_properties.append(("of a plugin", (7, frozenset({8}))))
    item.add_report_section(call.when, "of a plugin", "words")

def pytest_runtest_logreport(report):
    names = ("nodeid", "when", "outcome", "location", "longrepr", "keywords", "sections", "user_properties")
    if hears:
        with open("heard.txt", "a") as file:
            print([getattr(report, name) for name in names], file=file)
"""


@pytest.mark.nightly
def test_other_plugins_hear_of_workers_what_they_hear_of_one_process(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    records |= {"Torch.no_such_function.0.forward": records["Functional.linear.0.forward"]}
    write_dump(records)
    pytester.makeconftest(HEARING)
    heard = []
    for workers in ("-n0", "-n2"):
        pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", workers)
        heard.append(sorted((pytester.path / "heard.txt").read_text().splitlines()))
        (pytester.path / "heard.txt").unlink()
    assert len(heard[0]) == 3 * len(records)
    assert any("'skipped'" in line for line in heard[0])
    assert heard[0] == heard[1]


ASKED = """
def pytest_configure(config):
    global is_worker
    is_worker = hasattr(config, "workerinput")

def pytest_report_teststatus(report):
    if is_worker:
        with open("asked.txt", "a") as file:
            print(report.when, file=file)
"""


@pytest.mark.nightly
def test_a_plugin_that_has_a_say_in_what_is_shown_is_asked_by_workers_too(
    pytester: pytest.Pytester, write_dump: Write, records: Json
) -> None:
    write_dump(records)
    pytester.makeconftest(ASKED)
    pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=cpu", "-n1")
    asked = (pytester.path / "asked.txt").read_text().splitlines()
    assert sorted(asked) == sorted(["setup", "call", "teardown"] * len(records))


@pytest.mark.nightly
def test_by_each_every_worker_checks_every_record_and_reports_show_by_which_card(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("if record == 'Functional.linear.0.forward': result = result + 1")
    checked = check(
        "--msprobe-dump=dump.json", "--msprobe-device=faulty", "-n2", "--dist=each", "--msprobe-journal=run.jsonl",
        apart=True,
    )  # fmt: skip
    checked.result.assert_outcomes(passed=2 * len(records) - 2, failed=2)
    assert checked.wrong == {"Functional.linear.0.forward"}
    checked.result.stdout.fnmatch_lines([f"{2 * len(records)} API records: * passed, 2 failed", "on faulty:0: *"])
    cases = [case.attrib["name"] for case in ET.parse(pytester.path / "report.xml").getroot().iter("testcase")]
    assert sorted(cases) == sorted([*records, *records])
    entries = read_journal(pytester.path / "run.jsonl").entries
    assert set(entries) == {f"dump.json::{name}" for name in records}


@pytest.mark.nightly
def test_workers_take_the_chosen_cards_in_turn(write_dump: Write, many: Json, check: Any) -> None:
    write_dump(many)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim:5,2", "-n3", apart=True)
    assert checked.exit_code == 0
    checked.result.stdout.fnmatch_lines_random(
        ["on sim:5: * passed (simulated card 5 *", "on sim:2: * passed (simulated card 2 *"]
    )
    assert {case.properties["msprobe.device"] for case in checked.cases.values()} == {"sim:5", "sim:2"}


def test_auto_makes_one_worker_per_chosen_card(write_dump: Write, records: Json, check: Any) -> None:
    write_dump(records)
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=sim:0,1", "-nauto", apart=True)
    assert checked.exit_code == 0
    checked.result.stdout.fnmatch_lines(["2 workers [[]5 items[]]"])


@pytest.mark.nightly
def test_auto_counts_the_cards_of_a_registered_device(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    write_dump: Write,
    records: Json,
    make_device: Callable[[str], None],
) -> None:
    write_dump(records)
    make_device("pass")
    monkeypatch.setenv("MSPROBE_SIM_DEVICES", "3")
    result = pytester.runpytest_subprocess(
        "--msprobe-dump=dump.json", "--msprobe-device=faulty", "-nauto", "--collect-only", "-q"
    )
    assert result.ret == 0
    result = pytester.runpytest_subprocess("--msprobe-dump=dump.json", "--msprobe-device=faulty", "-nauto", "-x")
    result.stdout.fnmatch_lines(["3 workers [[]5 items[]]"])


@pytest.mark.parametrize(
    ("death", "said"),
    [
        pytest.param("os._exit(7)", "exited with status 7", id="exit", marks=pytest.mark.nightly),
        pytest.param("os.kill(os.getpid(), 9)", "was killed by SIGKILL", id="kill"),
    ],
)
def test_a_record_that_kills_its_worker_is_one_failure_and_the_run_goes_on(
    write_dump: Write, many: Json, check: Any, make_device: Callable[[str], None], death: str, said: str
) -> None:
    killer = "Torch.index_select.4.forward"
    write_dump(many)
    make_device(f"if record == {killer!r}: {death}")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty:3,6", "-n2", apart=True)
    assert checked.exit_code == pytest.ExitCode.TESTS_FAILED
    checked.result.assert_outcomes(passed=len(many) - 1, failed=1)
    checked.result.stdout.fnmatch_lines(
        [
            f"crash: the process that ran it {said}",
            f"{killer} failed (crash) on faulty:[36]",
            f"Run this item alone: pytest --msprobe-dump=*::{killer} --msprobe-device faulty:[36]",
            f"{len(many)} API records: {len(many) - 1} passed, 1 failed",
        ]
    )
    # The replacement took over the dead worker's card: no one started a third one.
    devices = {case.properties["msprobe.device"] for case in checked.cases.values() if case.outcome == "passed"}
    assert devices == {"faulty:3", "faulty:6"}


@pytest.mark.nightly
def test_one_worker_that_dies_is_replaced_on_the_same_card(
    write_dump: Write, records: Json, check: Any, make_device: Callable[[str], None]
) -> None:
    write_dump(records)
    make_device("if record == 'Functional.linear.0.backward': os._exit(7)")
    checked = check("--msprobe-dump=dump.json", "--msprobe-device=faulty:6", "-n1", apart=True)
    checked.result.assert_outcomes(passed=len(records) - 1, failed=1)
    passed = [case for case in checked.cases.values() if case.outcome == "passed"]
    assert {case.properties["msprobe.device"] for case in passed} == {"faulty:6"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("distribution", "held"), [("load", "node2collection"), ("loadfile", "registered_collections")]
)
def test_equal_collections_of_workers_are_held_once(
    pytester: pytest.Pytester, write_dump: Write, many: Json, check: Any, distribution: str, held: str
) -> None:
    write_dump(many)
    pytester.makeconftest(
        f"""
        def pytest_sessionfinish(session):
            spread = session.config.pluginmanager.get_plugin("dsession")
            if spread is not None:
                collections = spread.sched.{held}.values()
                print("held", len(set(map(id, collections))), "of", len(collections))
        """
    )
    checked = check("--msprobe-dump=dump.json", "-n2", "-s", f"--dist={distribution}", apart=True)
    assert "held 1 of 2" in checked.output
