"""Cells that MindSpore computes again in the backward pass."""

from __future__ import annotations

from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn  # noqa: E402

from msprobe_hooks import record  # noqa: E402
from tests.mindspore.recordings import read, tensor  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


class Block(nn.Cell):
    """A dense layer with functions behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(3, 3)

    def construct(self, x: Tensor) -> Tensor:
        return mint.exp(mint.tanh(self.dense(x))) * x


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_calls_that_are_made_again_in_the_backward_pass_say_so(tmp_path: Path, is_reentrant: bool) -> None:
    block = Block()
    block.recompute(use_reentrant=is_reentrant)
    net = nn.SequentialCell(block, nn.Dense(3, 1))

    def program(x: Tensor) -> Tensor:
        return net(x).sum()

    with record(tmp_path, level="mix", model=net, framework="mindspore") as session:
        ms.value_and_grad(program, None, net.trainable_params())(tensor(2, 3))
    data = read(tmp_path)["data"]
    for name in ("Mint.exp", "Mint.tanh", "Tensor.__mul__"):
        assert [data[f"{name}.{place}.forward"]["is_recompute"] for place in (0, 1)] == [False, True]
    assert [data[f"Cell.0.dense.Dense.forward.{place}"]["is_recompute"] for place in (0, 1)] == [False, True]
    assert data["Cell.1.Dense.forward.0"]["is_recompute"] is False
    assert not any("exception" in record for record in data.values())
    assert session.summary.raised == 0
    assert read(tmp_path, "construct.json")["Cell.1.Dense.forward.0"] is None


def test_calls_of_a_backward_function_are_not_recomputed(tmp_path: Path) -> None:
    class Double(nn.Cell):
        def construct(self, x: Tensor) -> Tensor:
            return x + x

        def bprop(self, x: Tensor, out: Tensor, gradient: Tensor) -> tuple[Tensor]:
            return (mint.mul(gradient, 2),)

    double = Double()

    def program(x: Tensor) -> Tensor:
        return double(x).sum()

    with record(tmp_path, framework="mindspore"):
        ms.grad(program)(tensor(3))
    assert read(tmp_path)["data"]["Mint.mul.0.forward"]["is_recompute"] is False
