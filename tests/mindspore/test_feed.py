"""Cells of a running MindSpore program get the inputs that a dump recorded for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn, ops  # noqa: E402

from msprobe_hooks import ConfigError, FeedError, feed, record  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


class Layer(nn.Cell):
    """Keeps what it was given at each call, apart from any hook."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = ms.Parameter(Tensor(np.full((3, 3), weight, np.float32)), name="weight")
        self.given: list[Any] = []

    def construct(self, x: Tensor, scale: float = 1.0, mask: Tensor | None = None) -> Tensor:
        self.given.append((x.asnumpy().astype(np.float32), scale, mask))
        y = ops.tanh(ops.matmul(x, self.weight.astype(x.dtype))) * scale
        return y if mask is None else y * mask


class Net(nn.Cell):
    def __init__(self, first: float = 0.25, *, recompute: bool = False) -> None:
        super().__init__()
        self.layers = nn.CellList([Layer(first), Layer(0.5)])
        if recompute:
            self.layers[1].recompute()

    def construct(self, x: Tensor, **options: Any) -> Tensor:
        for layer in self.layers:
            x = layer(x, **options)
        return x


def batch(seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).normal(size=(2, 3)).astype(np.float32))


def golden_input(seed: int) -> np.ndarray:
    """What the second layer of the right net is given."""
    return np.tanh(batch(seed).asnumpy() @ np.full((3, 3), 0.25, np.float32))


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    net = Net()
    with record(tmp_path / "golden", level="L0", task="tensor", model=net, framework="mindspore") as session:
        net(batch(0))
        net(batch(1))
        session.step()
        net(batch(2))
    return tmp_path / "golden"


def records_of(folder: Path, step: int = 0) -> dict[str, Any]:
    content: dict[str, dict[str, Any]] = json.loads((folder / f"step{step}/rank/dump.json").read_text())
    return content["data"]


def given(net: Net, layer: int = 1) -> list[np.ndarray]:
    return [x for x, _, _ in net.layers[layer].given]


def assert_close(found: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_each_call_of_a_named_cell_gets_the_inputs_of_that_call(golden: Path) -> None:
    net = Net(first=2.0)
    with feed(golden, ["layers.1"], model=net, framework="mindspore") as fed:
        net(batch(0))
        net(batch(1))
    assert_close(given(net), [golden_input(0), golden_input(1)])
    assert fed.calls == {"layers.1": 2}
    assert not fed.is_partial


def test_inputs_follow_the_steps_of_the_recording_and_its_records_say_so(golden: Path, tmp_path: Path) -> None:
    net = Net(first=2.0)
    with (
        feed(golden, ["layers.1"], model=net, framework="mindspore"),
        record(tmp_path / "target", level="mix", task="tensor", model=net, framework="mindspore") as session,
    ):
        net(batch(0))
        session.step()
        net(batch(2))
    assert_close(given(net), [golden_input(0), golden_input(2)])
    details = records_of(tmp_path / "target", 1)["Cell.layers.1.Layer.forward.0"]["details"]
    assert details["fed"]["record"] == "Cell.layers.1.Layer.forward.0"
    file = tmp_path / "target/step1/rank/dump_tensor_data/Cell.layers.1.Layer.forward.0.input.0.npy"
    np.testing.assert_allclose(np.load(file), golden_input(2), rtol=1e-5)


def test_feeding_adds_no_calls_to_a_recording(golden: Path, tmp_path: Path) -> None:
    for name, modules in (("fed", ["*"]), ("plain", None)):
        net = Net()
        with record(tmp_path / name, level="mix", model=net, framework="mindspore"):
            if modules is None:
                net(batch(0))
            else:
                with feed(golden, modules, model=net, framework="mindspore"):
                    net(batch(0))
    assert sorted(records_of(tmp_path / "fed")) == sorted(records_of(tmp_path / "plain"))


def test_gradients_pass_through_a_fed_input_unchanged(golden: Path) -> None:
    net = Net(first=2.0)
    with feed(golden, ["layers.1"], model=net, framework="mindspore"):
        by_input = ms.grad(lambda x: net(x).sum())(batch(0)).asnumpy()
    weight = np.full((3, 3), 0.5, np.float32)
    through = (1 - np.tanh(golden_input(0) @ weight) ** 2) @ weight.T
    first = np.full((3, 3), 2.0, np.float32)
    own = (through * (1 - np.tanh(batch(0).asnumpy() @ first) ** 2)) @ first.T
    np.testing.assert_allclose(by_input, own, rtol=1e-4, atol=1e-6)


def test_a_recomputed_call_gets_the_inputs_of_its_first_time(golden: Path) -> None:
    net = Net(first=2.0, recompute=True)
    with feed(golden, ["layers.1"], model=net, framework="mindspore"):
        ms.grad(lambda x: (net(x) + net(x + 1)).sum())(batch(0))
    # The backward pass goes through the later batch first.
    assert_close(given(net), [golden_input(seed) for seed in (0, 1, 1, 0)])


def test_keyword_arguments_are_fed_and_numbers_that_differ_are_kept(tmp_path: Path) -> None:
    right, wrong = Net(), Net()
    mask = Tensor(np.ones((2, 3), np.float32))
    with record(tmp_path / "golden", level="L0", task="tensor", model=right, framework="mindspore"):
        right(batch(0), scale=0.5, mask=mask)
    with feed(tmp_path / "golden", ["layers.1"], model=wrong, framework="mindspore") as fed:
        wrong(batch(0), scale=0.25, mask=mask * 2)
    _, scale, given_mask = wrong.layers[1].given[0]
    assert scale == 0.25
    np.testing.assert_array_equal(given_mask.asnumpy(), mask.asnumpy())
    assert "layers.1 kwargs.scale is 0.25 here, and 0.5 in the dump" in str(fed)


def test_bfloat16_comes_back_bit_by_bit(tmp_path: Path) -> None:
    class Widens(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            self.seen = x.float().asnumpy()
            return x.float()

    right, wrong = nn.CellList([Widens()]), nn.CellList([Widens()])
    x = batch(0).astype(ms.bfloat16)
    with record(tmp_path / "golden", level="L0", task="tensor", model=right, framework="mindspore"):
        right[0](x)
    with feed(tmp_path / "golden", ["0"], model=wrong, framework="mindspore"):
        wrong[0](Tensor(np.zeros((2, 3), np.float32)).astype(ms.bfloat16))
    np.testing.assert_array_equal(wrong[0].seen, x.float().asnumpy())


def test_another_shape_is_an_error_that_names_cell_argument_and_both_shapes(golden: Path) -> None:
    net = Net()
    with (
        feed(golden, ["layers.1"], model=net, framework="mindspore"),
        pytest.raises(FeedError, match=r"layers.1 input.0 \(x\) has the shape \(4, 3\) in this run and \(2, 3\) in "),
    ):
        net(Tensor(np.ones((4, 3), np.float32)))


def test_a_model_is_needed(golden: Path) -> None:
    with (
        pytest.raises(ConfigError, match="model is None; allowed: a mindspore"),
        feed(golden, ["layers.1"], framework="mindspore"),
    ):
        pass
