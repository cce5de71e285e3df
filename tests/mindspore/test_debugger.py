"""``PrecisionDebugger`` of MindSpore: steps that a program ends, and steps that a callback ends."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mindspore")

from mindspore import mint, nn

from tests.mindspore.recordings import tensor

pytestmark = pytest.mark.usefixtures("pynative")


def test_the_debugger_writes_a_folder_for_each_step(tmp_path: Path) -> None:
    from msprobe_hooks.mindspore import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=tmp_path, level="L1")
    try:
        for _ in range(2):
            debugger.start()
            mint.abs(tensor(2))
            debugger.stop()
            debugger.step()
    finally:
        debugger._finish()
    assert [json.loads((tmp_path / f"step{step}/rank/dump.json").read_text())["data"].keys() for step in (0, 1)] == [
        {"Mint.abs.0.forward"},
        {"Mint.abs.0.forward"},
    ]


def test_the_callback_records_each_step_of_a_training(tmp_path: Path) -> None:
    from mindspore.dataset import NumpySlicesDataset
    from mindspore.train import Model

    from msprobe_hooks.mindspore import MsprobeStep, PrecisionDebugger

    net = nn.Dense(3, 1)
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))
    data = NumpySlicesDataset((np.ones((4, 3), np.float32), np.ones((4, 1), np.float32))).batch(2)
    debugger = PrecisionDebugger(dump_path=tmp_path, level="L1")
    try:
        model.train(1, data, callbacks=[MsprobeStep(debugger)], dataset_sink_mode=False)
    finally:
        debugger._finish()
    for step in (0, 1):
        names = json.loads((tmp_path / f"step{step}/rank/dump.json").read_text())["data"]
        assert any(name.startswith("Primitive.matmul.MatMul") for name in names)
