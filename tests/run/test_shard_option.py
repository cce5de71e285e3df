from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.run.sharding import ITEM_ELEMENTS, Call, assign_shards
from tests.support.runs import check

Write = Callable[..., Path]

_RESNET = Path(__file__).parents[1] / "data" / "dumps" / "resnet18" / "dump.json"

works = st.dictionaries(
    st.builds(Call, st.just(Path("dump.json")), st.text("abc", max_size=3)), st.integers(1, 10**9).map(float)
)


@given(works, st.integers(1, 9))
def test_every_call_goes_to_one_shard_and_shards_differ_by_no_more_than_the_largest_call(
    work: dict[Call, float], count: int
) -> None:
    dealt = assign_shards(work, count)
    assert dealt.keys() == work.keys()
    assert set(dealt.values()) <= set(range(1, count + 1))
    loads = [sum(work[call] for call in work if dealt[call] == number) for number in range(1, count + 1)]
    assert max(loads) - min(loads) <= max(work.values(), default=0.0)


@given(works, st.integers(1, 9), st.randoms())
def test_a_call_goes_to_the_same_shard_in_whichever_order_calls_come(
    work: dict[Call, float], count: int, shuffled: random.Random
) -> None:
    calls = list(work.items())
    shuffled.shuffle(calls)
    assert assign_shards(dict(calls), count) == assign_shards(work, count)


@pytest.fixture
def chosen(pytester: pytest.Pytester) -> Callable[..., list[str]]:
    """Return the names of the records that these options leave."""

    def collect(*arguments: str | Path) -> list[str]:
        result = pytester.runpytest_inprocess("--collect-only", "-q", *arguments)
        return [line.partition("::")[2] for line in result.outlines if "::" in line]

    return collect


def test_eight_shards_of_a_step_share_its_records_and_differ_by_a_tenth_in_recorded_work(
    chosen: Callable[..., list[str]],
) -> None:
    data = json.loads(_RESNET.read_text())["data"]
    shards = [chosen(f"--msprobe-dump={_RESNET}", f"--msprobe-shard={number}/8") for number in range(1, 9)]
    assert sorted(name for shard in shards for name in shard) == sorted(data)
    work = [sum(ITEM_ELEMENTS + _elements(data[name]) for name in shard) for shard in shards]
    assert max(work) <= 1.1 * min(work)


def _elements(record: Any) -> int:
    return sum(math.prod(shape) for shape in _shapes(record))


def _shapes(tree: Any) -> Iterator[list[int]]:
    if isinstance(tree, dict) and "shape" in tree:
        yield tree["shape"]
    elif isinstance(tree, dict | list):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _shapes(part)


def test_both_records_of_a_call_are_in_one_shard(chosen: Callable[..., list[str]]) -> None:
    names = set(chosen(f"--msprobe-dump={_RESNET}", "--msprobe-shard=2/5"))
    recorded = json.loads(_RESNET.read_text())["data"].keys()
    for name in names:
        other = name.replace(".forward", ".backward") if name.endswith("forward") else name.replace("back", "for")
        assert other in names or other not in recorded


@pytest.fixture
def four_calls(write_dump: Write, element: Any, forward: Any) -> Path:
    return write_dump({f"Torch.abs.{i}.forward": forward(element(2 + i)) for i in range(4)})


def test_shards_are_of_what_other_options_choose(four_calls: Path, chosen: Callable[..., list[str]]) -> None:
    chosen_by_name = [f"--msprobe-dump={four_calls}", "-k", "abs.1 or abs.3"]
    shards = [chosen(*chosen_by_name, f"--msprobe-shard={number}/2") for number in (1, 2)]
    assert sorted(map(len, shards)) == [1, 1]
    assert {name for shard in shards for name in shard} == {"Torch.abs.1.forward", "Torch.abs.3.forward"}


def test_tests_of_the_users_own_run_in_every_shard(pytester: pytest.Pytester, four_calls: Path) -> None:
    module = pytester.makepyfile("def test_it(): pass")
    for number in (1, 2):
        found = check(pytester, module, f"--msprobe-dump={four_calls}", f"--msprobe-shard={number}/2")
        assert "test_it" in found.cases
        assert len(found.cases) == 3


def test_a_shard_without_work_ends_well_and_one_that_chose_nothing_does_not(
    pytester: pytest.Pytester, four_calls: Path
) -> None:
    assert check(pytester, f"--msprobe-dump={four_calls}", "--msprobe-shard=5/5").exit_code == 0
    nothing = check(pytester, f"--msprobe-dump={four_calls}", "--msprobe-shard=1/5", "-k", "nothing")
    assert nothing.exit_code == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.slow
def test_a_shard_without_work_ends_well_over_workers_too(pytester: pytest.Pytester, four_calls: Path) -> None:
    found = check(pytester, f"--msprobe-dump={four_calls}", "--msprobe-shard=5/5", "-n1", apart=True)
    assert found.exit_code == 0


@pytest.mark.parametrize("text", ["9/8", "0/8", "8", "1/0", "-1/8", "a/b", "1/8/2"])
def test_what_is_no_shard_is_reported_with_what_is_one(pytester: pytest.Pytester, four_calls: Path, text: str) -> None:
    found = check(pytester, f"--msprobe-dump={four_calls}", f"--msprobe-shard={text}")
    assert found.exit_code == pytest.ExitCode.USAGE_ERROR
    assert f"--msprobe-shard {text!r}: expected I/N with I from 1 to N, such as 3/8" in found.errors


def test_a_journal_goes_on_with_its_own_shard_alone(pytester: pytest.Pytester, four_calls: Path) -> None:
    dump = f"--msprobe-dump={four_calls}"
    check(pytester, dump, "--msprobe-shard=1/2", "--msprobe-journal=run.jsonl")
    again = check(pytester, dump, "--msprobe-shard=1/2", "--msprobe-resume=run.jsonl")
    assert again.exit_code == 0
    again.result.assert_outcomes(deselected=4)
    other = check(pytester, dump, "--msprobe-shard=2/2", "--msprobe-resume=run.jsonl")
    assert "run.jsonl: was made with shard 1/2, this run has 2/2; use another journal" in other.errors
    whole = check(pytester, dump, "--msprobe-resume=run.jsonl")
    assert "run.jsonl: was made with shard 1/2, this run has (all); use another journal" in whole.errors


def test_the_command_that_repeats_a_failure_names_no_shard(
    pytester: pytest.Pytester, write_dump: Write, element: Any, forward: Any
) -> None:
    dump = write_dump({"Torch.no_such_function.0.forward": {"input_args": 3}})
    found = check(pytester, f"--msprobe-dump={dump}", "--msprobe-shard=1/1")
    text = found.cases["Torch.no_such_function.0.forward"].text
    assert "pytest --msprobe-dump=" in text
    assert "--msprobe-shard" not in text


def test_the_header_names_the_shard(pytester: pytest.Pytester, four_calls: Path) -> None:
    assert "msprobe: shard 2/3" in check(pytester, f"--msprobe-dump={four_calls}", "--msprobe-shard=2/3").output
