"""A training of MindSpore that is watched: numbers are computed again by numpy."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn  # noqa: E402

from msprobe_hooks import ConfigError, watch_mindspore  # noqa: E402
from msprobe_hooks.extensions.monitor.series.reader import open_run  # noqa: E402
from msprobe_hooks.extensions.monitor.watch.config import STATISTICS, WHAT  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


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


@pytest.mark.parametrize("make", [nn.Adam, nn.Momentum])
def test_five_steps_of_a_training_give_the_same_bits(tmp_path: Path, make: Callable[..., Any]) -> None:
    def trained(is_watched: bool) -> list[Any]:
        ms.set_seed(1)
        model = nn.SequentialCell(nn.Dense(4, 3), nn.Tanh(), nn.Dense(3, 1)).set_train()
        optimizer = make(model.trainable_params(), 0.1, 0.9)
        step = trainer(model, optimizer)
        everything = [name for name in WHAT if name != "collectives"]
        context = watch_mindspore(model, optimizer, tmp_path, what=everything, statistics=STATISTICS)
        with context if is_watched else nullcontext() as watcher:
            for _ in range(5):
                step()
        if watcher is not None:
            assert not watcher.collection.errors
            assert {row.task for row in watcher.rows} >= {"actv", "actv_grad", "grad_unreduced", "param_updated"}
        return [one.asnumpy().tobytes() for one in model.trainable_params()]

    assert trained(True) == trained(False)


class Branching(nn.Cell):
    """Gives back nested collections; its input goes two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Dense(4, 4)
        self.right = nn.Dense(4, 4)

    def construct(self, x: Any, *, scale: float = 1.0, mask: Any = None) -> Any:
        return {"both": (self.left(x), [self.right(x) * scale]), "sum": (x * mask).sum()}


def test_gradients_of_activations_are_those_that_each_cell_contributes(tmp_path: Path) -> None:
    ms.set_seed(2)
    model = Branching().set_train()
    x, mask = (Tensor(np.random.default_rng(seed).normal(size=(2, 4)).astype(np.float32)) for seed in (0, 1))

    def loss(x: Any) -> Any:
        found = model(x, scale=3.0, mask=mask)
        left, (right,) = found["both"]
        return (left * left).sum() + right.sum() + found["sum"]

    with watch_mindspore(model, path=tmp_path, what=["activation_gradients"], statistics=["norm", "mean"]) as watcher:
        ms.grad(loss, 0)(x)
        watcher.end_step()
    values = x.asnumpy().astype(np.float64)
    weights = [one.weight.asnumpy().astype(np.float64) for one in (model.left, model.right)]
    outputs = values @ weights[0].T + model.left.bias.asnumpy()
    left, right = 2 * outputs, np.full((2, 4), 3.0)
    expected = {
        ".output_both_0": left,
        ".output_both_1_0": np.ones((2, 4)),
        ".output_sum": np.ones(()),
        "left.output": left,
        "left.input": left @ weights[0],
        "right.output": right,
        "right.input": right @ weights[1],
        ".input_0": left @ weights[0] + right @ weights[1] + mask.asnumpy(),
    }
    found = {row.name: row.values for row in watcher.rows}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name] == pytest.approx((norm(array), array.mean()), rel=1e-5, abs=1e-6), name


def test_elements_of_tuples_mappings_and_keywords_are_reported_by_place(tmp_path: Path) -> None:
    model = Branching().set_train()
    x = Tensor(np.ones((2, 4), np.float32))
    with watch_mindspore(model, path=tmp_path, what=["activations"]) as watcher:
        model(x, mask=x)
        watcher.end_step()
    names = [row.name for row in watcher.rows if row.name.startswith(".")]
    assert names == [".input_0", ".input_mask", ".output_both_0", ".output_both_1_0", ".output_sum"]


def test_recomputed_activations_are_reported_once_and_have_their_gradients(tmp_path: Path) -> None:
    def rows(is_recomputed: bool) -> dict[tuple[str, str], tuple[float, ...]]:
        ms.set_seed(1)
        inner = nn.SequentialCell(nn.Dense(4, 4), nn.Tanh())
        model = nn.SequentialCell(nn.Dense(4, 4), inner, nn.Dense(4, 1)).set_train()
        if is_recomputed:
            inner.recompute()
        what = ["activations", "activation_gradients"]
        with watch_mindspore(model, path=tmp_path, what=what, format="api") as watcher:
            ms.grad(lambda x: model(x).square().sum(), None, model.trainable_params())(Tensor(np.ones((2, 4), "f4")))
            watcher.end_step()
        assert not watcher.collection.errors
        return {(row.task, row.name): row.values for row in watcher.rows}

    assert rows(is_recomputed=True) == rows(is_recomputed=False)


def test_each_micro_batch_has_its_own_gradients_and_without_asking_the_last_is_reported(
    tmp_path: Path, model: Any
) -> None:
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    gradients = ms.grad(lambda x: model(x).square().sum(), None, optimizer.parameters)
    batches = [Tensor(np.random.default_rng(seed).normal(size=(2, 4)).astype(np.float32)) for seed in range(2)]

    def step() -> list[float]:
        found = [gradients(x) for x in batches]
        optimizer(tuple(one + other for one, other in zip(*found, strict=True)))
        return [norm(one[0].asnumpy()) for one in found]

    for what, wanted in (("micro_batch_gradients", [0, 1]), ("gradients", [None])):
        with watch_mindspore(model, optimizer, tmp_path, what=[what], micro_batches=2) as watcher:
            expected = step()[-len(wanted) :]
        rows = [row for row in watcher.rows if (row.task, row.name) == ("grad_unreduced", "0.weight")]
        assert [row.micro_step for row in rows] == wanted
        assert [row.values[0] for row in rows] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("make", "has_corrections"),
    [
        (lambda weights: nn.Adam(weights, 0.1, eps=1e-3), True),
        (lambda weights: nn.AdamWeightDecay(weights, 0.1, eps=1e-3), False),
        (lambda weights: ms.experimental.optim.Adam(weights, 0.1, eps=1e-3), True),
        (lambda weights: ms.experimental.optim.AdamW(weights, 0.1, eps=1e-3), True),
    ],
)
def test_direction_and_update_follow_from_gradients_as_adam_has_them(
    tmp_path: Path, model: Any, make: Callable[[Any], Any], has_corrections: bool
) -> None:
    optimizer = make(model.trainable_params())
    step = trainer(model, optimizer)
    first = second = np.zeros((3, 4))
    options = {"what": ["direction", "updates"], "statistics": ["mean", "norm"], "format": "api"}
    with watch_mindspore(model, optimizer, tmp_path, **options) as watcher:
        for number in range(1, 4):
            gradient = step()[0].astype(np.float64)
            agreement = (np.mean(np.sign(gradient) * np.sign(first)) + 1) / 2 if first.any() else 1.0
            first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
            corrections = (1 - 0.9**number, 1 - 0.999**number) if has_corrections else (1, 1)
            mean, root = first / corrections[0], np.sqrt(second / corrections[1])
            rows = {(row.task, row.name): row.values for row in watcher.rows}
            assert rows["other", "0.weight.mg_direction"][0] == pytest.approx(agreement, rel=1e-6)
            ratio = np.divide(mean, root, out=np.zeros((3, 4)), where=root != 0)
            for task, array in {"adam_update": mean / (root + 1e-3), "adam_ratio": ratio}.items():
                assert rows[task, "0.weight"] == pytest.approx((array.mean(), norm(array)), rel=1e-4, abs=1e-5), task
    assert not watcher.collection.errors


def test_no_hook_is_left_behind(tmp_path: Path, model: Any) -> None:
    optimizer = nn.SGD(model.trainable_params(), 0.1)

    def hooks() -> list[int]:
        cells = [optimizer, *(cell for _, cell in model.cells_and_names())]
        names = ("_forward_pre_hook", "_forward_hook", "_cell_backward_hook")
        found = [len(getattr(cell, name, None) or ()) for cell in cells for name in names]
        return found + [len(one.hooks()) for one in model.trainable_params()]

    before = hooks()
    with watch_mindspore(model, optimizer, tmp_path, what=[name for name in WHAT if name != "collectives"]):
        assert sum(hooks()) >= sum(before) + 2 + 2 * 4 + 4
        trainer(model, optimizer)()
    assert hooks() == before


def test_graph_mode_is_refused(tmp_path: Path, model: Any) -> None:
    ms.set_context(mode=ms.GRAPH_MODE)
    with pytest.raises(ConfigError, match="mode is 'GRAPH_MODE'"), watch_mindspore(model, path=tmp_path):
        pass
    assert [*tmp_path.iterdir()] == []


def test_structure_and_stacks_are_written_at_the_first_step(tmp_path: Path, model: Any) -> None:
    with watch_mindspore(model, path=tmp_path, what=["structure", "stacks"]) as watcher:
        model(Tensor(np.ones((2, 4), np.float32)))
        watcher.end_step()
    assert watcher.folder is not None
    structure = json.loads((watcher.folder / "module_struct.json").read_text())
    assert structure["0:0"] == {
        "input": {"config": "tuple[1]", "0": "size=(2, 4), dtype=Float32"},
        "output": {"config": "tensor", "tensor": "size=(2, 3), dtype=Float32"},
    }
    stacks = (watcher.folder / "stack_info.csv").read_text()
    assert stacks.startswith("module_name,stack_info\n0:0,")
    assert "test_structure_and_stacks" in stacks
    assert "cell.py" not in stacks


def test_a_target_chooses_cell_side_and_element(tmp_path: Path, model: Any) -> None:
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    targets = {"0": {"output": "tensor", "input_grad": "tensor"}, "2": {"output_grad": "tuple[1]:0"}}
    with watch_mindspore(model, optimizer, tmp_path, targets=targets) as watcher:
        trainer(model, optimizer)()
    found = {(row.task, row.name) for row in watcher.rows if row.task.startswith("actv")}
    assert found == {("actv", "0.output"), ("actv_grad", "2.output")}
    assert {row.name for row in watcher.rows if row.task == "grad_reduced"} == {
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    }


@pytest.mark.parametrize(
    ("targets", "cells", "parameters"),
    [
        ({"0": {}}, {"0.input", "0.output"}, {"0.weight", "0.bias"}),
        ({"": {}}, {".input", ".output"}, {"0.weight", "0.bias", "2.weight", "2.bias"}),
    ],
)
def test_a_target_without_fields_is_watched_whole_and_one_without_a_name_is_the_model(
    tmp_path: Path, model: Any, targets: Any, cells: set[str], parameters: set[str]
) -> None:
    optimizer = nn.SGD(model.trainable_params(), 0.1)
    with watch_mindspore(model, optimizer, tmp_path, what=["activations", "gradients"], targets=targets) as watcher:
        trainer(model, optimizer)()
    assert {row.name for row in watcher.rows if row.task == "actv"} == cells
    assert {row.name for row in watcher.rows if row.task == "grad_reduced"} == parameters


@pytest.mark.parametrize("make", [nn.Adam, ms.mint.optim.AdamW])
def test_a_parameter_of_no_optimizer_is_watched_and_one_of_another_is_not_and_both_are_named(
    tmp_path: Path, model: Any, make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    gc.unfreeze()
    optimizer, other = nn.Adam([model[0].weight], 0.1), make([model[2].weight, model[2].bias], 0.1)
    with watch_mindspore(model, optimizer, tmp_path, what=["gradients", "parameters"]) as watcher:
        trainer(model, optimizer)()
    del other
    assert {row.name for row in watcher.rows if row.task == "param_updated"} == {"0.weight", "0.bias"}
    assert caplog.messages == [
        "parameters in no optimizer of this process: 0.bias; add them to the optimizer "
        "if no other rank updates them, or set requires_grad to False if they are meant to be frozen",
        "parameters not monitored, because another optimizer has them: 2.weight, 2.bias; "
        "monitor that optimizer as well",
    ]


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        (
            (nn.Dense(1, 1),),
            {"what": ["collectives"]},
            "what is 'collectives'; allowed: .*stacks; MindSpore's communication functions are not monitored",
        ),
        (
            (nn.Dense(1, 1), nn.SGD(nn.Dense(1, 1).trainable_params())),
            {},
            "optimizer is 'SGD'; allowed: an optimizer of the model's parameters, of which it has none",
        ),
        (("model",), {}, r"model is 'str'; allowed: a mindspore\.nn\.Cell"),
        ((nn.Dense(1, 1), "adam"), {}, "optimizer is 'adam'; allowed: an optimizer of MindSpore"),
    ],
)
def test_what_is_not_watched_is_named(tmp_path: Path, arguments: Any, options: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text), watch_mindspore(*arguments, path=tmp_path, **options):
        pass
    assert [*tmp_path.iterdir()] == []
