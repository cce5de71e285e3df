"""Variables of MindSpore that a program saves by name, and their gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint  # noqa: E402

from msprobe_hooks import record  # noqa: E402
from tests.mindspore.recordings import read, tensor  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")


def test_saved_variables_and_their_gradients_are_recorded(tmp_path: Path) -> None:
    x = tensor(2, 3)

    def program(x: Tensor) -> Tensor:
        y = mint.tanh(x)
        session.save({"y": y, "n": 4, "also": [y, Tensor([1.0])]}, "mine")
        session.save(y, "mine", save_backward=False)
        return (y * y).sum()

    with record(tmp_path, level="debug", task="tensor", framework="mindspore") as session:
        ms.grad(program)(x)
    data = read(tmp_path, "debug.json")["data"]
    assert list(data) == ["mine.0.debug", "mine.1.debug", "mine_grad.0.debug"]
    y = np.tanh(x.asnumpy())
    assert data["mine.0.debug"]["n"] == {"type": "int", "value": 4}
    assert data["mine.0.debug"]["y"]["Norm"] == pytest.approx(np.linalg.norm(y), rel=1e-3)
    gradients = data["mine_grad.0.debug"]
    assert gradients["y"]["Max"] == gradients["also"][0]["Max"] == pytest.approx(2 * y.max(), rel=1e-3)
    assert gradients["also"][1] is None
    stored = tmp_path / "step0/rank/dump_tensor_data" / gradients["y"]["data_name"]
    np.testing.assert_allclose(np.load(stored), 2 * y, rtol=1e-3)


def test_saving_changes_no_bit_of_the_gradients(tmp_path: Path) -> None:
    x = tensor(5, 7)

    def program(x: Tensor) -> Tensor:
        y = mint.exp(x)
        session.save(y, "y")
        return (y * x).sum()

    with record(tmp_path, level="debug", framework="mindspore") as session:
        watched = ms.grad(program)(x)
        session.stop()
        alone = ms.grad(program)(x)
    assert list(read(tmp_path, "debug.json")["data"]) == ["y.0.debug", "y_grad.0.debug"]
    assert np.array_equal(alone.asnumpy(), watched.asnumpy())
