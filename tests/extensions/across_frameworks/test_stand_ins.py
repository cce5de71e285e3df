"""Another function at the same place, and values of 32 bits in a run of 16 bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dumps.across_frameworks import call, pair_of, partners, tensor, torch_tensor


def calls(*names: str, out: float = 1.0) -> dict[str, dict[str, object]]:
    made = torch_tensor if names[0].startswith("Torch") else tensor
    return {f"{name}.0.forward": call(made(2), out=made(2, at=out)) for name in names}


def test_another_function_at_the_same_place_is_compared_with_the_one_there(tmp_path: Path) -> None:
    ours, theirs = calls("Mint.abs", "Mint.tanh", "Mint.exp"), calls("Torch.abs", "Torch.relu", "Torch.exp")
    theirs["Torch.relu.0.forward"] = call(torch_tensor(2), out=torch_tensor(2, at=2))
    pair = pair_of(tmp_path, ours, theirs)
    assert partners(pair)["Mint.tanh.0.forward"] == "Torch.relu.0.forward"
    assert pair.compare("Mint.tanh.0.forward").cause == "culprit"


@pytest.mark.parametrize(
    "theirs",
    [
        ("Torch.abs", "Torch.relu", "Torch.square", "Torch.exp"),
        ("Torch.abs", "Torch.exp", "Torch.relu"),
        ("Torch.relu", "Torch.abs", "Torch.exp"),
    ],
)
def test_where_places_do_not_show_a_call_has_no_partner(tmp_path: Path, theirs: tuple[str, ...]) -> None:
    pair = pair_of(tmp_path, calls("Mint.abs", "Mint.tanh", "Mint.exp"), calls(*theirs))
    assert partners(pair)["Mint.tanh.0.forward"] is None


def test_calls_of_other_shapes_do_not_stand_in_for_each_other(tmp_path: Path) -> None:
    ours, theirs = calls("Mint.abs", "Mint.tanh", "Mint.exp"), calls("Torch.abs", "Torch.relu", "Torch.exp")
    theirs["Torch.relu.0.forward"] = call(torch_tensor(3))
    assert partners(pair_of(tmp_path, ours, theirs))["Mint.tanh.0.forward"] is None


def test_after_a_tensor_of_16_bits_values_of_32_bits_are_as_precise_as_it(tmp_path: Path) -> None:
    ours, theirs = calls("Mint.abs", "Mint.neg", "Mint.exp"), calls("Torch.abs", "Torch.neg", "Torch.exp")
    ours["Mint.neg.0.forward"] = call(tensor(2, dtype="Float16"))
    theirs["Torch.neg.0.forward"] = call(tensor(2, dtype="torch.float16"))
    for name in ("Mint.abs.0.forward", "Mint.exp.0.forward"):
        ours[name] = call(tensor(2), out=tensor(2, at=1.001))
    pair = pair_of(tmp_path, ours, theirs)
    assert [pair.compare(name).outcome for name in ours] == ["fail", "pass", "pass"]


def test_parameters_are_as_precise_as_they_are(tmp_path: Path) -> None:
    name, other = "Cell.n.Dense.forward.0", "Module.n.Linear.forward.0"
    ours = {name: call(tensor(2, dtype="Float16")) | {"parameters": {"weight": tensor(2, at=1.001)}}}
    theirs = {other: call(torch_tensor(2)) | {"parameters": {"weight": torch_tensor(2)}}}
    found = pair_of(tmp_path, ours, theirs).compare(name)
    assert [row.place for row in found.rows if row.outcome == "fail"] == ["parameters.weight"]


def test_what_pytorch_accumulates_over_passes_is_left_out_where_it_differs(tmp_path: Path) -> None:
    ours = {f"Cell.n.Dense.parameters_grad.{i}": {"weight": [tensor(2)], "bias": [tensor(2)]} for i in range(2)}
    theirs = {
        "Module.n.Linear.parameters_grad.0": {"weight": [torch_tensor(2)], "bias": [torch_tensor(2, at=3)]},
        "Module.n.Linear.parameters_grad.1": {"weight": [torch_tensor(2)], "bias": [torch_tensor(2, at=3)]},
    }
    pair = pair_of(tmp_path, ours, theirs)
    assert [pair.compare(name).outcome for name in ours] == ["fail", "pass"]
    left = [row.place for row in pair.compare("Cell.n.Dense.parameters_grad.1").rows if row.unmeasured == "left out"]
    assert left == ["bias"]
