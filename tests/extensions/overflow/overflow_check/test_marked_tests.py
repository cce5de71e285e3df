"""Tests that are marked to fail where overflow arises."""

from __future__ import annotations

import json

import pytest

OVERFLOWING = """
import pytest, torch

@pytest.mark.msprobe_record(task="overflow_check")
def test_step(tmp_path):
    x = torch.tensor([2.0, 1e3])
    exploded = torch.exp(x)
    (tmp_path / "reached").touch()
"""


def outcomes(result: pytest.RunResult) -> dict[str, int]:
    return {key: count for key, count in result.parseoutcomes().items() if key != "warnings"}


def test_a_test_marked_for_overflow_fails_within_the_call_in_which_it_arises(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OVERFLOWING)
    result = pytester.runpytest_inprocess("--basetemp=base")
    assert outcomes(result) == {"failed": 1}
    result.stdout.fnmatch_lines(
        [
            "Torch.exp.0.forward: critical: inf or nan in the output and none in the input",
            "output.0 torch.float32 (2,): Max inf, Min 7.38906",
            "input.0 torch.float32 (2,): Max 1000, Min 2",
            "called at *line 6, in test_step, exploded = torch.exp(x)",
            "its tensors are in *msprobe-overflow-*/step0/rank",
        ]
    )
    assert not list(pytester.path.rglob("reached"))


@pytest.mark.slow
def test_a_test_marked_for_overflow_is_recorded_below_the_folder_that_is_given(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OVERFLOWING)
    assert outcomes(pytester.runpytest_inprocess("--msprobe-record=dumps")) == {"failed": 1}
    (dump,) = (pytester.path / "dumps").rglob("dump.json")
    assert list(json.loads(dump.read_text())["data"]) == ["Torch.exp.0.forward"]
    found = pytester.runpytest_inprocess("--msprobe-overflow=dumps")
    found.stdout.fnmatch_lines(["first culprit: *Torch.exp.0.forward*"])


@pytest.mark.slow
def test_a_test_marked_for_overflow_passes_where_none_arises(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(OVERFLOWING.replace("1e3", "1.0"), conftest="import tempfile; tempfile.tempdir = '.'")
    result = pytester.runpytest_inprocess("--basetemp=base")
    assert outcomes(result) == {"passed": 1}
    assert not list(pytester.path.glob("msprobe-overflow-*"))


@pytest.mark.slow
def test_a_fixtures_recording_fails_where_overflow_arises(pytester: pytest.Pytester) -> None:
    text = OVERFLOWING.replace("(tmp_path)", "(tmp_path, msprobe_dump)")
    pytester.makepyfile(text, test_fine=text.replace("1e3", "1.0"))
    assert outcomes(pytester.runpytest_inprocess()) == {"failed": 1, "passed": 1}
