"""What cannot be compared: sides that are missing or do not belong together, and files that are damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Compare = Callable[..., pytest.RunResult]


def test_the_golden_run_must_be_named(pytester: pytest.Pytester, three: tuple[Path, Path]) -> None:
    result = pytester.runpytest_inprocess("--msprobe-compare", str(three[0]))
    result.stderr.fnmatch_lines(["*--msprobe-compare needs a golden run; pass --msprobe-golden PATH"])


def test_the_target_must_be_named(pytester: pytest.Pytester, three: tuple[Path, Path]) -> None:
    result = pytester.runpytest_inprocess("--msprobe-golden", str(three[0]))
    result.stderr.fnmatch_lines(
        ["ERROR: --msprobe-golden has nothing that it belongs to; use it with --msprobe-compare or *"]
    )


@pytest.mark.parametrize("side", [0, 1])
def test_a_missing_side_is_an_error(compare: Compare, three: tuple[Path, Path], side: int) -> None:
    paths = list(three)
    paths[side] = three[0].parent / "none.json"
    result = compare(*paths)
    result.stderr.fnmatch_lines(["*none.json*no such file*"])


@pytest.mark.parametrize(
    ("top", "problem"),
    [
        ({"task": "tensor"}, "*task statistics, but *has task tensor; record both with the same task"),
        ({"level": "mix"}, "*level L1, but *has level mix; record both at the same level"),
        ({"level": "compiled"}, "*level L1, but *has level compiled; record the compiled run with golden_path, *"),
    ],
)
def test_other_tasks_and_levels_are_refused(
    compare: Compare, runs: Any, three: tuple[Path, Path], call: Any, tensor: Any, top: Any, problem: str
) -> None:
    golden = runs.write("golden", {"Torch.mm.0.forward": call(tensor(2))}, **top)
    compare(three[0], golden).stderr.fnmatch_lines([problem])


def test_checksums_on_one_side_alone_are_refused(
    compare: Compare, runs: Any, three: tuple[Path, Path], call: Any, tensor: Any
) -> None:
    golden = runs.write("golden", {"Torch.mm.0.forward": call(tensor(2, md5="0a"))})
    compare(three[0], golden).stderr.fnmatch_lines(["*recorded with checksums*without; record both the same way"])


def test_another_model_is_one_error(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    paths = runs.both({"Torch.mm.0.forward": call(tensor(2))}, {"Torch.relu.0.forward": call(tensor(2))})
    compare(*paths).stderr.fnmatch_lines(
        ["*none of its 1 records matches one of *compare runs of one model, ignore call numbers *"]
    )


def test_a_malformed_record_fails_alone(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    good = {"Torch.relu.0.forward": call(tensor(2)), "Torch.mm.0.forward": call(tensor(2))}
    bad = good | {"Torch.mm.0.forward": call(tensor(2, shape="wide"))}
    result = compare(*runs.both(bad, good))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(['*data?"Torch.mm.0.forward"?.input.0.shape: expected an array of sizes'])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"Max": 10**309, "Min": 0}, ".Max: expected a number that a tensor can hold"),
        ({"shape": [10**24], "Min": 0}, ".shape: expected an array of sizes"),
    ],
)
def test_numbers_that_no_tensor_has_fail_their_record_alone(
    compare: Compare, runs: Any, call: Any, tensor: Any, fields: Any, said: str
) -> None:
    good = {"Torch.relu.0.forward": call(tensor(2)), "Torch.mm.0.forward": call(tensor(2))}
    bad = good | {"Torch.mm.0.forward": call(tensor(2, **fields))}
    result = compare(*runs.both(bad, good))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([f'*data?"Torch.mm.0.forward"?.input.0{said}'])


def test_a_damaged_construct_file_is_one_error(compare: Compare, three: tuple[Path, Path]) -> None:
    (three[0].parent / "construct.json").write_text("{")
    compare(*three).stderr.fnmatch_lines(["*construct.json is damaged*"])
