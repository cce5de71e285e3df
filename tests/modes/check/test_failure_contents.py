"""What is kept of a failing record, in its text and in a journal: a map of its error, its inputs, its call stack."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_msprobe.journal import read_journal
from pytest_msprobe.results.result import called_at, inputs_of
from tests.support.dumps import dump_files as dumps

_SOFTMAX = {"Functional.softmax.0.forward": dumps.forward(dumps.tensor(6, 40), dim=dumps.value(-1))}
_STACK = {"0": [list(_SOFTMAX), ["File model.py, line 3, in forward, \n self.attend(x)"]]}


@pytest.fixture
def without_last_column(make_device: Callable[[str], None]) -> None:
    """Register a device that drops the last column of softmax."""
    make_device("result = result.clone(); result[..., -1] = 0")


@pytest.mark.usefixtures("without_last_column")
def test_a_journal_keeps_map_inputs_and_stack_of_what_fails(
    pytester: pytest.Pytester, check: Callable[..., object]
) -> None:
    path = dumps.write_dump(pytester.path, _SOFTMAX, stacks=_STACK)
    journal = pytester.path / "run.jsonl"

    check(f"--msprobe-dump={path}", "--msprobe-device=faulty", f"--msprobe-journal={journal}")

    (entry,) = read_journal(journal).entries.values()
    (output,) = entry.result.outputs
    assert output.error_map is not None
    assert output.error_map.place == "[:, 39]"
    assert output.error_map.wrong == 6
    assert len(output.error_map.worst[0].baseline) > 1
    (given,) = inputs_of(entry.result.extras)
    assert (given.path, given.shape) == ("args.0", (6, 40))
    assert -1 <= given.least < given.mean < given.greatest <= 1
    assert given.rms == pytest.approx(1 / math.sqrt(3), abs=0.1)
    assert called_at(entry.result.extras) == ["File model.py, line 3, in forward, \n self.attend(x)"]


@pytest.mark.usefixtures("without_last_column")
def test_the_text_of_a_failure_has_the_map_where_more_is_asked_for(
    pytester: pytest.Pytester, check: Callable[..., object]
) -> None:
    path = dumps.write_dump(pytester.path, _SOFTMAX)
    options = [f"--msprobe-dump={path}", "--msprobe-device=faulty"]

    short, long = (check(*options, *more).cases.popitem()[1].text for more in ([], ["-v"]))  # type: ignore[attr-defined]

    assert "all in [:, 39]" in long
    assert "all in" not in short


def test_what_passes_keeps_nothing(tmp_path: Path, pytester: pytest.Pytester, check: Callable[..., object]) -> None:
    path = dumps.write_dump(pytester.path, _SOFTMAX, stacks=_STACK)
    journal = tmp_path / "run.jsonl"

    check(f"--msprobe-dump={path}", "--msprobe-device=cpu", f"--msprobe-journal={journal}")

    (entry,) = read_journal(journal).entries.values()
    assert entry.result.extras == {}
    assert [output.error_map for output in entry.result.outputs] == [None]
