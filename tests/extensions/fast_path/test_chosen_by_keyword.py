"""``-k`` chooses records before items are made, and chooses what pytest would have chosen of all items."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import deselect_by_keyword
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.fast_path.preselection import preselect
from pytest_msprobe.run.collection import dumps_key
from tests.support.dumps.dump_files import forward, tensor_around, write_dump

# A plugin that hears of every item has all of them made.
HEARS_OF_ALL = "def pytest_itemcollected(item): pass"
COUNTS_MADE = """
from pytest_msprobe.run.item import DumpItem

made = []
make = DumpItem.__init__

def make_counted(item, **given):
    made.append(given["name"])
    make(item, **given)

DumpItem.__init__ = make_counted

def pytest_unconfigure():
    DumpItem.__init__ = make
    print("made:", len(made))
"""

NAMES = (
    "Functional.linear.0.forward",
    "Functional.linear.0.backward",
    "Torch.int.1.forward",
    "Tensor.Add_.10.forward",
    "Torch.linalg.norm.3.forward",
    "strange name[x-1]",
)
WORDS = """
    linear LIN forward backward Torch torch int 1 10 .0. dump dump.json json pytorch mark float32 Float bfloat16 int64 8
    strange [x-1] x-1 backbone Module none True extra
    usefix run7 above test
""".split()

expressions = st.recursive(
    st.sampled_from(WORDS),
    lambda inner: (
        inner.map("not {}".format)
        | inner.map("({})".format)
        | st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join)
    ),
    max_leaves=6,
)


@pytest.fixture
def dump(pytester: pytest.Pytester) -> Path:
    dtypes = ("torch.float32", "torch.bfloat16", "torch.int64")
    records = {name: forward(tensor_around(2, dtype=dtypes[place % 3])) for place, name in enumerate(NAMES)}
    return write_dump(pytester.path / "above" / "run7", records)


class KeepsItems:
    """Keeps the items of a run, with their marks."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            list(item.iter_markers())
        self.items = session.items


@pytest.fixture
def items(pytester: pytest.Pytester, dump: Path) -> list[pytest.Item]:
    """Return the items of the dump, whose file has a mark and a keyword of another plugin."""
    kept = KeepsItems()
    pytester.inline_run("--collect-only", f"--msprobe-dump={dump}", plugins=[kept])
    items = kept.items
    file = items[0].parent
    assert file is not None
    file.extra_keyword_matches.add("Extra")
    file.add_marker("usefixtures")
    return items


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expressions)
def test_an_expression_chooses_what_pytest_chooses_of_all_items(items: list[pytest.Item], expression: str) -> None:
    file, config = items[0].parent, items[0].config
    assert isinstance(file, pytest.File)
    config.option.keyword = expression
    by_pytest = list(items)
    deselect_by_keyword(by_pytest, config)
    names = preselect(file, config.stash[dumps_key][file.path], [item.name for item in items])
    assert list(names) == [item.name for item in by_pytest]


@pytest.fixture
def listed(pytester: pytest.Pytester, dump: Path) -> Callable[..., tuple[list[str], str, int]]:
    """Return what lists the items that would run, what pytest says of their number, and how many were made."""
    pytester.makepyfile(counts=COUNTS_MADE, hears=HEARS_OF_ALL)
    pytester.syspathinsert()

    def listed(*options: str) -> tuple[list[str], str, int]:
        words = ("--collect-only", "-q", "-p", "counts", f"--msprobe-dump={dump}", *options)
        lines = pytester.runpytest_inprocess(*words).outlines
        names = [line.partition("dump.json::")[2] for line in lines if "dump.json::" in line]
        (counted,) = (line for line in lines if "collected" in line)
        (made,) = (line for line in lines if line.startswith("made: "))
        return names, re.sub(r" in [0-9.]+s", "", counted), int(made.split()[1])

    return listed


@pytest.mark.parametrize(
    "expression", ["norm", "linear and not backward", "bfloat16", "nothing", "not nothing", "above", "[x-1]"]
)
def test_a_run_shows_the_same_though_items_were_not_made(
    listed: Callable[..., tuple[list[str], str, int]], expression: str
) -> None:
    names, counted, made = listed("-k", expression)
    assert (names, counted, len(NAMES)) == listed("-k", expression, "-p", "hears")
    assert made == len(names)


def test_all_items_are_made_where_the_fast_path_is_off(listed: Callable[..., tuple[list[str], str, int]]) -> None:
    names, counted, _ = listed("-k", "norm")
    assert (names, counted, len(NAMES)) == listed("-k", "norm", "-o", "msprobe_fast_path=false")


def test_what_other_choices_leave_out_is_counted_once(listed: Callable[..., tuple[list[str], str, int]]) -> None:
    for options in (
        ["-m", "bfloat16 or float32"],
        ["--msprobe-skip=linear"],
        ["--msprobe-unique"],
        ["--deselect=above/run7/dump.json::Functional.linear.0.forward"],
    ):
        names, counted, _ = listed("-k", "forward and not int", *options)
        assert (names, counted) == listed("-k", "forward and not int", *options, "-p", "hears")[:2]


def test_the_number_of_deselected_items_is_in_the_last_line(pytester: pytest.Pytester, dump: Path) -> None:
    result = pytester.runpytest_inprocess(f"--msprobe-compare={dump}", f"--msprobe-golden={dump}", "-k", "norm")
    result.assert_outcomes(passed=1, deselected=len(NAMES) - 1)
    result.stdout.fnmatch_lines([f"*collected {len(NAMES)} items / {len(NAMES) - 1} deselected / 1 selected*"])
