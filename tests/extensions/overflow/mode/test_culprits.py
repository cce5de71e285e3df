"""In which records inf and nan begin: culprits, and what only seems to be one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.overflow.mode.conftest import levels

Check = Callable[..., Any]
Json = dict[str, Any]

CULPRIT = "Torch.exp.0.forward"

EXAMPLE = Path(__file__).parents[4] / "examples" / "overflow" / "step0"


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ({"high": float("nan")}, "critical"),
        ({"high": float("inf"), "requires_grad": True}, "critical"),
        ({"low": float("-inf")}, "high"),
    ],
    ids=["NaN", "inf in a weight", "a mask"],
)
def test_the_first_call_that_is_given_what_no_call_made_is_the_culprit(
    write_dump: Check, element: Check, forward: Check, check: Check, values: Json, level: str
) -> None:
    bad = element(2, **values)
    write_dump(
        {
            "Torch.exp.0.forward": forward(element(2)),
            "Functional.linear.0.forward": forward(element(2), bad, output=[bad]),
            "Torch.relu.0.forward": forward(bad, output=[bad]),
        }
    )
    checked = check("--msprobe-overflow=dump.json")
    assert [levels(checked)[f"{name}.0.forward"] for name in ("Functional.linear", "Torch.relu")] == [level, "high"]
    if level == "critical":
        assert checked.wrong == {"Functional.linear.0.forward"}
        text = checked.cases["Functional.linear.0.forward"].text
        assert "critical: inf or nan comes in with an input, and no call that was recorded before returned any" in text
        assert "input.1 torch.float32 (2,)" in text
        assert "first culprit: rank 0, Functional.linear.0.forward" in checked.output


def test_the_first_nan_of_an_infinite_input_is_a_culprit_and_what_follows_it_is_none(
    write_dump: Check, element: Check, forward: Check, check: Check
) -> None:
    mask, nan = element(2, low=float("-inf")), element(2, high=float("nan"))
    softmax = "Functional.softmax.0.forward"
    write_dump({softmax: forward(mask, output=[nan]), "Functional.softmax.1.forward": forward(mask, output=[nan])})
    checked = check("--msprobe-overflow=dump.json")
    assert checked.wrong == {softmax}
    assert "critical: nan in the output, of inf in the input" in checked.cases[softmax].text


def test_inf_that_arises_explains_the_nan_after_it(
    write_dump: Check, element: Check, forward: Check, check: Check
) -> None:
    inf, nan = element(2, high=float("inf")), element(2, high=float("nan"))
    write_dump(
        {"Torch.exp.0.forward": forward(element(2), output=[inf]), "Torch.sub.0.forward": forward(inf, output=[nan])}
    )
    assert check("--msprobe-overflow=dump.json").wrong == {"Torch.exp.0.forward"}


def test_undefined_memory_that_is_only_looked_at_brings_nothing_in(
    write_dump: Check, element: Check, forward: Check, check: Check
) -> None:
    bad = element(2, high=float("nan"))
    looked_at = forward(bad, output=[bad])
    write_dump({"Torch.empty.0.forward": forward(output=[bad]), "Tensor.__getitem__.0.forward": looked_at})
    assert check("--msprobe-overflow=dump.json").wrong == set()


def test_nan_of_a_call_without_outputs_comes_from_there(
    write_dump: Check, element: Check, forward: Check, check: Check
) -> None:
    bad = element(2, high=float("nan"))
    assignment = forward(element(2), bad, output=[])
    write_dump({"Tensor.__setitem__.0.forward": assignment, "Torch.relu.0.forward": forward(bad, output=[bad])})
    assert check("--msprobe-overflow=dump.json").wrong == set()


def test_what_a_missing_rank_may_have_given_is_reported(check: Check, pytester: Any) -> None:
    shutil.copytree(EXAMPLE / "rank3", pytester.path / "step0/rank3")
    checked = check("--msprobe-overflow=step0")
    assert checked.wrong == {"Distributed.recv.0.forward"}
    assert "it may have received them: rank 2 took part, without a matching record in these dumps" in checked.output


def test_communication_that_received_from_another_rank_does_not_fail(check: Check) -> None:
    checked = check(f"--msprobe-overflow={EXAMPLE}", "-omsprobe_overflow_level=high")
    assert "high: inf or nan received from another rank: rank 2, Distributed.send.0.forward" in checked.output


def test_a_module_is_named_for_the_record_within_it(
    write_dump: Check, element: Check, forward: Check, check: Check, pytester: Any
) -> None:
    body = forward(element(2), output=[element(2, high=float("inf"))])
    inner, outer = "Module.net.fc.Linear.forward.0", "Module.net.Net.forward.0"
    write_dump({CULPRIT: body, inner: body, outer: body, "Module.alone.Net.forward.0": body})
    (pytester.path / "construct.json").write_text(json.dumps({CULPRIT: inner, inner: outer, outer: None}))
    checked = check("--msprobe-overflow=dump.json")
    assert checked.wrong == {CULPRIT, "Module.alone.Net.forward.0"}
    assert f"first culprit: rank 0, {CULPRIT}" in checked.output
