"""A training of MindSpore that is watched: numbers are computed again by numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn  # noqa: E402

from msprobe_hooks import ConfigError, watch_mindspore  # noqa: E402
from msprobe_hooks.instruments.series.reading import open_run  # noqa: E402


@pytest.fixture(autouse=True)
def pynative() -> None:
    ms.set_context(mode=ms.PYNATIVE_MODE)


@pytest.fixture
def model() -> Any:
    ms.set_seed(0)
    return nn.SequentialCell(nn.Dense(4, 3), nn.ReLU(), nn.Dense(3, 1)).set_train()


def trainer(model: Any, optimizer: Any) -> Callable[[], list[np.ndarray[Any, Any]]]:
    """Return what makes a step, and returns its gradients."""
    gradients = ms.value_and_grad(lambda x: model(x).square().sum(), None, optimizer.parameters)
    x = Tensor(np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32))

    def step() -> list[np.ndarray[Any, Any]]:
        _, found = gradients(x)
        arrays = [one.asnumpy() for one in found]
        optimizer(found)
        return arrays

    return step


def values(folder: Path, task: str, name: str, statistic: str = "norm") -> list[float]:
    run = open_run(folder)
    (key,) = [key for key in run.keys if (key.task, key.name, key.statistic) == (task, name, statistic)]
    found: list[float] = run.read(key).values.tolist()
    return found


def norm(array: Any) -> float:
    return float(np.linalg.norm(np.asarray(array, dtype=np.float64)))


def test_gradients_moments_and_parameters_are_those_around_each_call_of_the_optimizer(
    tmp_path: Path, model: Any
) -> None:
    optimizer = nn.Adam(model.trainable_params(), 0.1)
    step, weight = trainer(model, optimizer), model[0].weight
    expected: dict[str, list[float]] = {"grad_reduced": [], "exp_avg": [], "param_origin": [], "param_updated": []}
    with watch_mindspore(model, optimizer, tmp_path, what=["gradients", "moments", "parameters"], ndigits=9) as watcher:
        for _ in range(2):
            expected["exp_avg"].append(norm(optimizer.moment1[0].asnumpy()))
            expected["param_origin"].append(norm(weight.asnumpy()))
            expected["grad_reduced"].append(norm(step()[0]))
            expected["param_updated"].append(norm(weight.asnumpy()))
    assert watcher.folder is not None
    for task, numbers in expected.items():
        assert values(watcher.folder, task, "0.weight") == pytest.approx(numbers, rel=1e-6), task


def test_activations_are_the_inputs_and_outputs_of_cells(tmp_path: Path, model: Any) -> None:
    x = Tensor(np.array([[1, -2, 3, 0.5]], np.float32))
    statistics = ["norm", "min", "max", "mean", "zeros"]
    with watch_mindspore(model, path=tmp_path, what=["activations"], statistics=statistics) as watcher:
        hidden = model[0](x)
        watcher.end_step()
        model(x)
        watcher.end_step()
    names = [row.name for row in watcher.rows]
    assert names[:3] == [".input", "0.input", "0.output"]
    (row,) = [row for row in watcher.rows if row.name == "1.input"]
    array = hidden.asnumpy().astype(np.float64)
    expected = (norm(array), array.min(), array.max(), array.mean(), np.mean(np.abs(array) < 1e-8))
    assert row.values == pytest.approx(expected, rel=1e-6)


def test_micro_batches_are_calls_of_the_model_and_a_cell_called_again_has_a_number(model: Any, tmp_path: Path) -> None:
    x = Tensor(np.ones((1, 4), np.float32))
    with watch_mindspore(model, path=tmp_path, what=["activations"]) as watcher:
        model(x)
        model(x)
        model[0](x)
        watcher.end_step()
    found = [(row.name, row.micro_step) for row in watcher.rows if row.name.startswith("0") and "input" in row.name]
    assert found == [("0.input", 0), ("0.input", 1), ("0[1].input", 1)]


def test_nothing_is_seen_in_evaluation_or_in_steps_between(model: Any, tmp_path: Path) -> None:
    x = Tensor(np.ones((1, 4), np.float32))
    with watch_mindspore(model, path=tmp_path, what=["activations"], every=2) as watcher:
        model.set_train(False)
        model(x)
        watcher.end_step()
        assert watcher.rows == []
        model.set_train()
        model(x)
        watcher.end_step()
        assert watcher.rows == []
        model(x)
        watcher.end_step()
    assert {row.step for row in watcher.rows} == {2}


def test_training_computes_the_same_bits(tmp_path: Path) -> None:
    def trained(is_watched: bool) -> list[Any]:
        ms.set_seed(1)
        model = nn.SequentialCell(nn.Dense(4, 3), nn.Dense(3, 1)).set_train()
        optimizer = nn.Adam(model.trainable_params(), 0.1)
        step = trainer(model, optimizer)
        if is_watched:
            with watch_mindspore(model, optimizer, tmp_path, what=["activations", "gradients", "moments"]):
                step()
        else:
            step()
        step()
        return [one.asnumpy().tolist() for one in model.trainable_params()]

    assert trained(True) == trained(False)


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (
            (nn.Dense(1, 1),),
            {"what": ["activation_gradients"]},
            "what is 'activation_gradients'; allowed: .* MindSpore",
        ),
        ((nn.Dense(1, 1),), {"targets": {"0": {"input": "tensor"}}}, "allowed: no such option for MindSpore"),
        (("model",), {}, r"model is 'str'; allowed: a mindspore\.nn\.Cell"),
        ((nn.Dense(1, 1), "adam"), {}, "optimizer is 'adam'; allowed: an optimizer of mindspore"),
    ],
)
def test_what_is_not_watched_is_named(tmp_path: Path, arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text), watch_mindspore(*arguments, path=tmp_path, **options):
        pass
    assert [*tmp_path.iterdir()] == []
