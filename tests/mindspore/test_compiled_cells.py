"""Recording models of which MindSpore compiles parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn, ops  # noqa: E402

from msprobe_hooks import record  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")

Json = dict[str, Any]


class Compiled(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 4)

    @ms.jit  # type: ignore[misc]
    def construct(self, x: Tensor) -> Tensor:
        return ops.tanh(self.dense(x))


class Net(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.body = Compiled()
        self.head = nn.Dense(4, 2)

    def construct(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


@pytest.fixture
def x() -> Tensor:
    return Tensor(np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))


def training(net: nn.Cell) -> Callable[[Tensor], Any]:
    """One step: the loss and the gradients of the weights."""
    return ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())


def records(folder: Path) -> Json:
    data: Json = json.loads((folder / "step0" / "rank" / "dump.json").read_text())["data"]
    return data


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_recording_a_cell_whose_construct_is_compiled_changes_no_bit(tmp_path: Path, x: Tensor, level: str) -> None:
    net = Net()
    loss, gradients = training(net)(x)
    with record(tmp_path, level=level, model=net, framework="mindspore"):
        watched_loss, watched = training(net)(x)
    for before, after in zip([loss, *gradients], [watched_loss, *watched], strict=True):
        np.testing.assert_array_equal(before.asnumpy(), after.asnumpy())


def test_a_compiled_cell_is_recorded_as_a_whole(tmp_path: Path, x: Tensor) -> None:
    net = Net()
    with record(tmp_path, level="L0", model=net, framework="mindspore"):
        training(net)(x)
    assert [name for name in records(tmp_path) if name.endswith("forward.0")] == [
        "Cell.body.Compiled.forward.0",
        "Cell.head.Dense.forward.0",
    ]


def test_a_compiled_cell_runs_while_recording_pauses_and_after_it(tmp_path: Path, x: Tensor) -> None:
    net = Net()
    expected = net(x).asnumpy()
    with record(tmp_path, level="mix", model=net, framework="mindspore") as session:
        session.stop()
        paused = net(x)
    for output in (paused, net(x)):
        np.testing.assert_array_equal(output.asnumpy(), expected)


def test_hooks_of_the_program_still_run_in_their_order(tmp_path: Path, x: Tensor) -> None:
    net, seen = Net(), []
    net.head.register_forward_pre_hook(lambda cell, args: seen.append("first"))
    with record(tmp_path, level="L0", model=net, framework="mindspore"):
        net.head.register_forward_pre_hook(lambda cell, args: seen.append("last"))
        net(x)
    assert seen == ["first", "last"]


def test_the_gradient_of_a_compiled_calls_input_is_not_that_of_its_weight(tmp_path: Path, x: Tensor) -> None:
    net = Compiled()
    with record(tmp_path / "weights", framework="mindspore"):
        # Weight and input have one shape; of the input no gradient is asked for.
        ms.value_and_grad(lambda x: net(x).sum(), None, net.trainable_params())(x)
    with record(tmp_path / "both", framework="mindspore"):
        of_x, _ = ms.grad(lambda x: net(x).sum(), 0, net.trainable_params())(x)
    without, with_it = (records(tmp_path / name)["Jit.construct.1.backward"]["output"] for name in ("weights", "both"))
    assert without == [None]
    assert [entry["Norm"] for entry in with_it] == pytest.approx([np.linalg.norm(of_x.asnumpy())], rel=1e-6)


def test_gradients_go_to_the_inputs_that_ask_for_them(tmp_path: Path, x: Tensor) -> None:
    scale = Tensor(np.full((4, 4), 3.0, np.float32))

    @ms.jit  # type: ignore[misc]
    def scaled(a: Tensor, b: Tensor) -> Tensor:
        return mint.mul(a, b)

    with record(tmp_path, framework="mindspore"):
        # Of the first argument no gradient is asked for here, of the second one it is.
        ms.grad(lambda a, b: scaled(a, b).sum(), 1)(x, scale)
    first, second = records(tmp_path)["Jit.scaled.1.backward"]["output"]
    assert first is None
    assert second["Norm"] == pytest.approx(np.linalg.norm(x.asnumpy()), rel=1e-6)


def test_calls_in_bytecode_without_lines_are_recorded(tmp_path: Path, x: Tensor) -> None:
    class Captured(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Dense(4, 4)

        @ms.jit(capture_mode="bytecode")  # type: ignore[misc]
        def construct(self, x: Tensor) -> Tensor:
            return ops.tanh(self.dense(x))

    net = nn.SequentialCell(Captured())
    expected = net(x).asnumpy()
    with record(tmp_path, level="mix", model=net, framework="mindspore"):
        np.testing.assert_array_equal(net(x).asnumpy(), expected)
    assert "Cell.0.Captured.forward.0" in records(tmp_path)
