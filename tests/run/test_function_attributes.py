"""What conftest files and plugins ask of every item, though only functions have it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.dumps.dump_files import Json
from tests.support.items import ANSWERS, assert_has_no_function

Write = Callable[..., Path]

CHECK = ("--msprobe-dump=dump.json", "--msprobe-device=cpu")


@pytest.mark.parametrize(
    "arguments",
    [
        CHECK,
        ("--msprobe-compare=dump.json", "--msprobe-golden=dump.json"),
        ("--msprobe-compare=dump.json", "--msprobe-golden=dump.json", "-omsprobe_compare_quick=true"),
    ],
    ids=["check", "compare", "quick"],
)
def test_items_of_each_kind_of_run_answer_as_items_without_a_function(
    pytester: pytest.Pytester, write_dump: Write, records: Json, arguments: tuple[str, ...]
) -> None:
    write_dump(records)
    assert_has_no_function(pytester.inline_genitems(*arguments)[0][0])


def test_an_item_that_is_asked_is_made_no_further(pytester: pytest.Pytester, write_dump: Write, records: Json) -> None:
    write_dump(records)
    pytester.makeconftest(
        f"""
        def pytest_itemcollected(item):
            before = dict(vars(item))
            item.fixturenames.append("database")
            assert {[*ANSWERS]} == [name for name in {[*ANSWERS]} if getattr(item, name) in (None, [], {{}})]
            assert vars(item) == before
        """
    )
    assert pytester.runpytest_inprocess(*CHECK, "--collect-only", "-q").ret == pytest.ExitCode.OK


MARKED = """
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "of_conftest: a mark of the user's own")

def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.of_conftest)
        condition = "sys.platform != 'nowhere'" if "softmax" in item.name else "sys.platform == 'nowhere'"
        item.add_marker(pytest.mark.skipif(condition, reason="a condition as text"))
"""


def test_a_condition_as_text_skips_the_records_that_it_is_true_for(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any
) -> None:
    write_dump(records)
    pytester.makeconftest(MARKED)
    outcomes = check(*CHECK).outcomes
    assert outcomes == {name: "skipped" if "softmax" in name else "passed" for name in records}


def test_a_mark_of_a_conftest_hides_none_of_a_record(
    pytester: pytest.Pytester, write_dump: Write, records: Json, check: Any
) -> None:
    write_dump(records)
    expected = check(*CHECK, "-m", "float32").outcomes.keys()
    assert 0 < len(expected) < len(records)
    pytester.makeconftest(MARKED)
    assert check(*CHECK, "-m", "float32 and of_conftest").outcomes.keys() == expected
