from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch

from msprobe_standards import Standard, judge_tree, standard

Pair = namedtuple("Pair", ["values", "hidden"])  # noqa: PYI024
ONE, TWO = torch.ones(2), torch.full((2,), 2.0)


def by_ulp(path: str, leaf: object) -> Standard:
    return standard("ulp")


def outcomes(target: Any, golden: Any) -> dict[str, str]:
    return {path: verdict.outcome for path, verdict in judge_tree(target, golden, select=by_ulp)}


@pytest.mark.parametrize(
    ("target", "golden", "expected"),
    [
        (ONE, ONE, {"out": "pass"}),
        ((ONE, TWO), (ONE, ONE), {"0": "pass", "1": "fail"}),
        (
            [ONE, {"hidden": TWO, "n": 3}],
            [ONE, {"hidden": TWO, "n": 3}],
            {"0": "pass", "1.hidden": "pass", "1.n": "pass"},
        ),
        (Pair(ONE, TWO), (ONE, TWO), {"0": "pass", "1": "pass"}),
        ((ONE,), (ONE, TWO), {"0": "pass", "1": "fail"}),
        ((ONE, TWO), (ONE,), {"0": "pass", "1": "fail"}),
        ({"a": ONE, "b": ONE}, {"a": ONE, "c": ONE}, {"a": "pass", "c": "fail", "b": "fail"}),
        ([ONE], (ONE,), {"out": "fail"}),
        (ONE, (ONE,), {"out": "fail"}),
        ({"x": (ONE,)}, {"x": ONE}, {"x": "fail"}),
        (ONE, None, {"out": "fail"}),
        (None, None, {"out": "pass"}),
        ((), (), {"out": "pass"}),
        ((), (ONE,), {"0": "fail"}),
        (((), ONE), ((), ONE), {"0": "pass", "1": "pass"}),
    ],
)
def test_every_leaf_is_judged_and_every_difference_fails(target: Any, golden: Any, expected: dict[str, str]) -> None:
    assert outcomes(target, golden) == expected


def test_named_results_of_torch_are_judged_by_position() -> None:
    result = torch.tensor([[1.0, 3.0], [5.0, 2.0]]).max(dim=1)
    assert outcomes(result, result) == {"0": "pass", "1": "pass"}


def test_missing_and_surplus_outputs_are_named() -> None:
    verdicts = dict(judge_tree({"a": ONE, "c": ONE}, {"a": ONE, "b": ONE}, select=by_ulp))
    assert verdicts["b"].reason == "output 'b' is missing; the target has 'a', 'c'"
    assert verdicts["c"].reason == "output 'c' is not in golden, which has 'a', 'b'"
    assert verdicts["b"].standard == "structure"


def test_the_standard_is_chosen_by_path_and_leaf() -> None:
    seen = []

    def select(path: str, leaf: object) -> Standard:
        seen.append((path, leaf))
        return standard("ulp")

    judge_tree((ONE, {"n": 3}), (ONE, {"n": 3}), select=select)
    assert [(path, type(leaf)) for path, leaf in seen] == [("0", torch.Tensor), ("1.n", int)]


def test_the_baseline_is_computed_once_and_only_when_needed() -> None:
    calls = []
    golden = torch.rand(100, dtype=torch.float64) + 1

    def baseline() -> object:
        calls.append(1)
        return [(golden * 1.0001).float(), {"x": (golden * 1.0001).float()}]

    def select(path: str, leaf: object) -> Standard:
        return standard("benchmark")

    exact = judge_tree(
        [golden.float(), {"x": golden.float()}], [golden, {"x": golden}], select=select, baseline=baseline
    )
    assert calls == []
    wrong = (golden * 0.9999).float()
    near = judge_tree([wrong, {"x": wrong}], [golden, {"x": golden}], select=select, baseline=baseline)
    assert calls == [1]
    assert {verdict.outcome for _, verdict in (*exact, *near)} == {"pass"}


@pytest.mark.parametrize("result", [None, [], [None], {"0": ONE}, ONE])
def test_a_baseline_without_the_leaf_counts_as_none(result: object) -> None:
    golden = torch.rand(100, dtype=torch.float64) + 1
    [(_, verdict)] = judge_tree(
        [(golden * (1 + 2e-6)).float()], [golden], select=lambda *_: standard("benchmark"), baseline=lambda: result
    )
    assert "judged without a baseline" in verdict.reason
