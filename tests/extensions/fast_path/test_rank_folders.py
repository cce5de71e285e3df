"""Of a run's folders of steps and ranks, only those of dumps that a run names are looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.dumps.dump_files import forward, tensor, write_dump

Compare = Callable[..., pytest.RunResult]

LOOKED_AT = """
looked_at = set()

def pytest_ignore_collect(collection_path):
    looked_at.add(collection_path.name)

def pytest_unconfigure():
    print("looked at:", *sorted(looked_at))
"""


@pytest.fixture
def compare(pytester: pytest.Pytester) -> Compare:
    """Write two runs of twelve ranks, and return what compares a quarter of them and says what pytest asks about."""
    for rank in range(12):
        for side in ("golden", "target"):
            write_dump(pytester.path / f"{side}/step0/rank{rank}", {"Torch.mm.0.forward": forward(tensor(2))})
    pytester.makeconftest(LOOKED_AT)
    sides = ("--msprobe-compare=target", "--msprobe-golden=golden", "--msprobe-shard=2/4")
    return lambda *arguments: pytester.runpytest_inprocess(*sides, *arguments)


def looked_at(result: pytest.RunResult) -> set[str]:
    """Return the names of the folders of steps and ranks that pytest has asked about."""
    (line,) = [line for line in result.outlines if line.startswith("looked at:")]
    return {name for name in line.split() if name.startswith(("step", "rank"))}


def test_a_shard_does_not_look_at_the_folders_of_others(compare: Compare) -> None:
    result = compare()
    result.assert_outcomes(passed=3)
    # pytest asks about no path that is named, nor about the folders around it.
    assert looked_at(result) == set()


def test_a_test_next_to_ranks_that_is_named_runs_as_well(compare: Compare, pytester: pytest.Pytester) -> None:
    (pytester.path / "target/step0/test_own.py").write_text("def test_own(): pass")
    compare("target/step0/test_own.py").assert_outcomes(passed=4)
