"""What a run asks for by name is chosen before items are made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]

COUNTED = """
import pytest

made = []

def pytest_itemcollected(item):
    made.append(item.name)

def pytest_unconfigure():
    print("made:", *made)
"""


@pytest.fixture
def run(
    pytester: pytest.Pytester, write_dump: Write, records: Json, make_device: Callable[[str], None]
) -> Callable[..., pytest.RunResult]:
    write_dump(records)
    make_device("result = result + 1 if record == 'Torch.index_select.0.forward' else result")
    conftest = pytester.path / "conftest.py"
    conftest.write_text(conftest.read_text() + COUNTED)
    return lambda *options: pytester.runpytest_inprocess(*options, "--msprobe-device=faulty")


def made(result: pytest.RunResult) -> list[str]:
    (line,) = [line for line in result.outlines if line.startswith("made:")]
    return line.split()[1:]


def test_a_record_by_name_is_the_only_item_that_is_made(run, records):
    name = next(iter(records))
    result = run(f"--msprobe-dump=dump.json::{name}")
    result.assert_outcomes(passed=1)
    assert made(result) == [name]


def test_several_names_are_as_many_items(run, records):
    names = list(records)[:2]
    result = run("--msprobe-dump=dump.json", *(f"dump.json::{name}" for name in names))
    assert sorted(made(result)) == sorted(records)
    result = run(*(f"dump.json::{name}" for name in names))
    result.assert_outcomes(passed=2)
    assert made(result) == names


def test_a_name_that_is_not_there_is_reported(run):
    run("--msprobe-dump=dump.json::Torch.sum.9.forward").stderr.fnmatch_lines(["*not found:*Torch.sum.9.forward*"])


def test_what_failed_last_is_the_only_item_that_is_made(run, records):
    assert run("--msprobe-dump=dump.json").ret == 1
    result = run("--msprobe-dump=dump.json", "--lf")
    result.assert_outcomes(failed=1)
    assert made(result) == ["Torch.index_select.0.forward"]
    result = run("--msprobe-dump=dump.json", "--ff")
    assert result.parseoutcomes()["passed"] == len(records) - 1


def test_a_shard_deals_all_calls_though_only_failures_run(run, records):
    assert run("--msprobe-dump=dump.json").ret == 1
    failed = [run("--msprobe-dump=dump.json", "--lf", f"--msprobe-shard={number}/2") for number in (1, 2)]
    assert sorted(result.parseoutcomes().get("failed", 0) for result in failed) == [0, 1]


def test_of_a_comparison_one_call_is_made(pytester, write_dump, records):
    for side in ("target", "golden"):
        (pytester.path / side).mkdir()
        write_dump(records).rename(pytester.path / side / "dump.json")
    pytester.makeconftest(COUNTED)
    name = next(iter(records))
    result = pytester.runpytest_inprocess(
        f"--msprobe-compare=target/dump.json::{name}", "--msprobe-golden=golden/dump.json"
    )
    assert made(result) == [name]


def test_an_item_is_what_pytest_makes_once_somebody_asks(pytester, write_dump, records):
    pytester.makeconftest(
        """
        import pytest
        from pytest_msprobe.modes.check.items import RecordItem

        KEY = pytest.StashKey()

        def pytest_collection_modifyitems(items):
            for item in items:
                made = RecordItem.from_parent(item.parent, name=item.name, dump=item.dump)
                assert item.nodeid == made.nodeid and item.location == made.location
                assert not hasattr(item, "callspec")
                item.stash[KEY] = item.name
                item.extra_keyword_matches.add("asked")
                item.add_marker("skip")
                assert set(vars(item)) == set(vars(made))
                assert item.nodeid == made.nodeid
                assert (item.user_properties, item.result) == ([], None)
                assert item.stash[KEY] == item.name and "skip" in item.keywords
                with pytest.raises(AttributeError, match="no attribute 'unknown'"):
                    item.unknown
        """
    )
    result = pytester.runpytest_inprocess(f"--msprobe-dump={write_dump(records)}", "-k", "asked")
    result.assert_outcomes(skipped=len(records))
