"""Weights that are golden's under another name, or in the order of another rotary embedding, are said to be so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from msprobe_hooks import write_weights

LAYER = "layers.{}.self_attn.{}_proj.weight"


def model() -> dict[str, Tensor]:
    """Return two layers of queries and keys, with 2 heads of 8."""
    generator = torch.Generator().manual_seed(0)
    names = [LAYER.format(layer, part) for layer in range(2) for part in "qk"]
    return {name: torch.randn(16, 12, generator=generator) for name in names}


def swapped(state: dict[str, Tensor], first: str, second: str) -> dict[str, Tensor]:
    return state | {first: state[second], second: state[first]}


def from_halves_to_pairs(weight: Tensor) -> Tensor:
    """Return the rows of heads of 8 in the order in which a rotary embedding of neighbours takes them."""
    return weight.reshape(2, 2, 4, -1).transpose(1, 2).reshape(16, -1)


def reasons(pytester: pytest.Pytester, target: Path, golden: Path) -> dict[str, str]:
    """Return the reasons of a comparison's failures by parameter."""
    result = pytester.runpytest_inprocess(
        f"--msprobe-checkpoint={target}", f"--msprobe-golden={golden}", "--tb=no", "-rf", "--color=no"
    )
    text = re.sub(r"\n(?!FAILED|=)", "", result.stdout.str())
    return dict(re.findall(r"^FAILED \S*::(\S+) - (.*)$", text, re.MULTILINE))


@pytest.fixture(params=["digest", "tensors"])
def written(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return what writes a state, as digests or with its values."""
    # Reasons are cut at the width of the terminal.
    monkeypatch.setenv("COLUMNS", "400")
    return lambda state, name: write_weights(state, tmp_path / name, step=0, what=request.param).parent


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LAYER.format(0, "q"), LAYER.format(0, "k")),
        (LAYER.format(0, "q"), LAYER.format(1, "q")),
    ],
)
def test_two_weights_that_were_swapped_name_each_other(
    pytester: pytest.Pytester, written: object, first: str, second: str
) -> None:
    found = reasons(pytester, written(swapped(model(), first, second), "target"), written(model(), "golden"))
    assert found.keys() == {first, second}
    assert found[first].startswith(f"equal to golden's {second}")
    assert found[second].startswith(f"equal to golden's {first}")


def test_weights_that_were_rounded_and_swapped_name_each_other(pytester: pytest.Pytester, written: object) -> None:
    first, second = LAYER.format(0, "q"), LAYER.format(0, "k")
    rounded = {name: weight.bfloat16() for name, weight in swapped(model(), first, second).items()}
    found = reasons(pytester, written(rounded, "target"), written(model(), "golden"))
    assert f"equal to golden's {second}" in found[first]
    assert f"equal to golden's {first}" in found[second]


def test_a_weight_that_is_none_of_golden_names_none(pytester: pytest.Pytester, written: object) -> None:
    name = LAYER.format(0, "q")
    found = reasons(pytester, written(model() | {name: model()[name] + 1}, "target"), written(model(), "golden"))
    assert found.keys() == {name}
    assert "equal to golden's" not in found[name]


def test_the_order_of_another_rotary_embedding_is_an_order(pytester: pytest.Pytester, written: object) -> None:
    name = LAYER.format(1, "k")
    changed = model() | {name: from_halves_to_pairs(model()[name])}
    found = reasons(pytester, written(changed, "target"), written(model(), "golden"))
    assert "rows are golden's in another order (12 of 16: 1-6, 9-14)" in found[name]


def test_values_that_many_golden_weights_have_are_said_of_one_and_counted(
    pytester: pytest.Pytester, written: object
) -> None:
    names = [f"layers.{layer}.norm.weight" for layer in range(4)]
    golden = {name: torch.ones(8) for name in names} | {names[0]: torch.full((8,), 2.0)}
    found = reasons(pytester, written(golden | {names[0]: torch.ones(8)}, "target"), written(golden, "golden"))
    assert found[names[0]].startswith(f"equal to golden's {names[1]} and 2 more")
