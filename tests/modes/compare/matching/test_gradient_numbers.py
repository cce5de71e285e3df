"""Gradients of parameters, whose numbers count on from step to step in some dumps."""

from __future__ import annotations

import pytest

from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import Json, forward, tensor_around


def step(*gradients: tuple[str, float]) -> Json:
    """Return a call of a layer and the gradients of its weight, each record by the end of its name."""
    given = tensor_around(2)
    calls = {"Module.fc.Linear.forward.0": forward(given)}
    return calls | {f"Module.fc.Linear.{end}": {"weight": [tensor_around(2, Max=high)]} for end, high in gradients}


def outcomes(runs: Runs, target: Json, golden: Json) -> list[str]:
    pair = runs.pair(target, golden)
    return [pair.compare(name).outcome for name in pair.orders if "parameters_grad" in name]


@pytest.mark.parametrize("end", ["parameters_grad.1", "parameters_grad", "parameters_grad.7"])
def test_the_first_of_a_step_is_compared_with_the_first(runs: Runs, end: str) -> None:
    assert outcomes(runs, step((end, 2.0)), step(("parameters_grad.0", 2.0))) == ["pass"]
    assert outcomes(runs, step((end, 2.0)), step(("parameters_grad.0", 3.0))) == ["fail"]


def test_the_second_is_compared_with_the_second_where_one_number_is_on_both_sides(runs: Runs) -> None:
    target = step(("parameters_grad.1", 2.0), ("parameters_grad.2", 3.0))
    golden = step(("parameters_grad.0", 2.0), ("parameters_grad.1", 3.0))
    assert outcomes(runs, target, golden) == ["pass", "pass"]


def test_gradients_of_a_renamed_layer_are_compared_too(runs: Runs) -> None:
    target = step(("parameters_grad.3", 2.0))
    golden = {name.replace("fc", "proj"): record for name, record in step(("parameters_grad.0", 2.0)).items()}
    assert outcomes(runs, target, golden) == ["pass"]
