"""``msprobe_fast_path = false`` has items of dumps take pytest's own path, with the same outcomes and reports."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.extensions.fast_path import switch
from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import Json, forward, tensor_around

Write = Callable[..., Path]

OFF = ("-o", "msprobe_fast_path=false")
CHECK = ("--msprobe-dump=dump.json", "--msprobe-device=cpu")
PARTS = """
import pytest
from _pytest.mark.structures import NodeKeywords

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    print("made:", len(items), "deferred:", sum("own_markers" not in vars(item) for item in items))
    print("keywords:", {type(item.keywords) is NodeKeywords for item in items})

def pytest_collection_finish(session):
    ours = [name for name, _ in session.config.pluginmanager.list_name_plugin() if name.startswith("msprobe-")]
    print("registered:", *sorted({"msprobe-fast-protocol", "msprobe-captured-logs"} & {*ours}))
"""


def lines(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if line.startswith(("made:", "keywords:", "registered:"))]


@pytest.fixture
def parts(pytester: pytest.Pytester, write_dump: Write, records: Json) -> Callable[..., list[str]]:
    """Run a check of five records and return what it says of the parts of the fast path."""
    write_dump(records)
    pytester.makepyfile(parts=PARTS)
    pytester.syspathinsert()
    return lambda *options: lines(pytester.runpytest_inprocess(*CHECK, "-p", "parts", "-s", *options))


@pytest.mark.parametrize(("setting", "is_on"), [("true", True), ("false", False)])
def test_the_setting_turns_every_part_on_or_off(
    parts: Callable[..., list[str]], records: Json, setting: str, is_on: bool
) -> None:
    assert parts("-o", f"msprobe_fast_path={setting}") == [
        f"made: {len(records)} deferred: {len(records) * is_on}",
        f"keywords: {{{not is_on}}}",
        "registered: msprobe-captured-logs msprobe-fast-protocol" if is_on else "registered:",
    ]


def test_a_comparison_has_the_same_reports_with_and_without_it(pytester: pytest.Pytester) -> None:
    names = [f"Torch.relu.{number}.forward" for number in range(4)]
    golden = {name: forward(tensor_around(4, 4)) for name in names}
    target = golden | {names[1]: forward(tensor_around(4, 4), output=[tensor_around(4, 4, at=2.0)])}
    del golden[names[2]]
    ours, theirs = Runs(pytester.path).both(target, golden)
    on, off = (
        pytester.inline_run(f"--msprobe-compare={ours}", f"--msprobe-golden={theirs}", *words).getreports(
            "pytest_runtest_logreport"
        )
        for words in ((), OFF)
    )
    assert [_content(report) for report in on] == [_content(report) for report in off]


def _content(report: Any) -> tuple[Any, ...]:
    properties = report.user_properties if report.when == "teardown" else []
    text = report.longreprtext if report.failed else ""
    return report.nodeid, report.when, report.outcome, text, properties


def test_a_value_that_is_neither_true_nor_false_is_refused(pytester: pytest.Pytester) -> None:
    result = pytester.runpytest_inprocess("-o", "msprobe_fast_path=maybe")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*msprobe_fast_path*maybe*"])


def test_it_is_off_with_a_warning_where_pytest_lacks_a_private_name(
    pytester: pytest.Pytester, write_dump: Write, records: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_dump(records)
    monkeypatch.setattr(switch, "PRIVATE_NAMES", ("_pytest.runner:call_and_report", "_pytest.runner:no_such_name"))
    result = pytester.runpytest_inprocess(*CHECK)
    result.assert_outcomes(passed=len(records), warnings=1)
    result.stdout.fnmatch_lines(["*msprobe_fast_path is off: pytest * lacks _pytest.runner:no_such_name"])
