"""A recording of MindSpore that pauses within a step: what ran before has its gradients."""

from __future__ import annotations

from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn  # noqa: E402

from msprobe_hooks import record  # noqa: E402
from tests.mindspore.recordings import read, tensor  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def test_what_ran_before_a_pause_has_its_backward_records(tmp_path: Path) -> None:
    def paused(x: Tensor) -> Tensor:
        y = mint.tanh(x)
        session.stop()
        return mint.abs(y).sum()

    with record(tmp_path, framework="mindspore") as session:
        ms.value_and_grad(paused)(tensor(3))
    assert list(read(tmp_path)["data"]) == ["Mint.tanh.0.forward", "Mint.tanh.0.backward"]


def test_the_gradients_of_a_cell_that_ran_before_a_pause_are_recorded(tmp_path: Path) -> None:
    net = nn.SequentialCell(nn.Dense(3, 2))

    def paused(x: Tensor) -> Tensor:
        y = net(x)
        session.stop()
        return y.sum()

    with record(tmp_path, level="L0", model=net, framework="mindspore") as session:
        ms.value_and_grad(paused, None, net.trainable_params())(tensor(1, 3))
    names = [".".join(name.split(".")[3:]) for name in read(tmp_path)["data"]]
    assert sorted(names) == ["backward.0", "forward.0", "parameters_grad.0"]
