"""``TrainerMon`` of MindSpore: msprobe's configuration, arguments and files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, nn  # noqa: E402

from msprobe_hooks import ConfigError  # noqa: E402
from msprobe_hooks.extensions.monitor.series import blocks  # noqa: E402
from msprobe_hooks.mindspore import TrainerMon  # noqa: E402

pytestmark = pytest.mark.usefixtures("pynative")

EVERYTHING = {
    "xy_distribution": True,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "ur_distribution": True,
    "mg_direction": True,
}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write a configuration and return its path; what is written lies next to it."""
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))

    def write(**keys: Any) -> Path:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(keys))
        return path

    return write


class Training:
    """A small model, its optimizer, and what makes a step."""

    def __init__(self) -> None:
        ms.set_seed(0)
        self.model = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 1)).set_train()
        self.optimizer = nn.Adam(self.model.trainable_params(), 0.1)
        self._gradients = ms.grad(lambda x: self.model(x).sum(), None, self.optimizer.parameters)

    def step(self) -> list[Any]:
        """Make a step, and return its gradients."""
        found = self._gradients(Tensor(np.ones((2, 3), np.float32)))
        self.optimizer(found)
        return [one.asnumpy() for one in found]


def files(folder: Path) -> dict[str, list[str]]:
    """Return names of files of the only run below a folder, without that of times, and their lines."""
    (run,) = folder.iterdir()
    return {path.name: path.read_text().splitlines() for path in run.iterdir() if path.name != blocks.FILE}


def test_files_and_columns_are_those_of_26(config: Callable[..., Path], tmp_path: Path) -> None:
    training = Training()
    TrainerMon(config(**EVERYTHING, ops=["norm", "min"], step_count_per_record=2)).set_monitor(
        training.model, training.optimizer
    )
    for _ in range(2):
        training.step()
    written = files(tmp_path / "out")
    weights = ("grad_unreduced", "grad_reduced", "exp_avg", "exp_avg_sq", "param_origin", "param_updated")
    others = ("adam_update", "adam_ratio", "other")
    assert {name: lines[0] for name, lines in written.items()} == {
        "actv_0-1.csv": "vpp_stage,name,step,micro_step,norm,min",
        "actv_grad_0-1.csv": "vpp_stage,name,step,micro_step,norm,min",
        **{f"{task}_0-1.csv": "vpp_stage,name,step,norm,min" for task in (*weights, *others)},
    }
    assert [line.split(",")[:4] for line in written["actv_0-1.csv"][1:3]] == [
        ["0", ".input", "0", "0"],
        ["0", "0.input", "0", "0"],
    ]


def test_the_files_of_1_2_have_a_line_for_each_call_of_a_cell(config: Callable[..., Path], tmp_path: Path) -> None:
    training = Training()
    keys = {"format": "mindspore-csv", "xy_distribution": True, "param_distribution": True}
    TrainerMon(config(**keys)).set_monitor(training.model, training.optimizer)
    training.step()
    written = files(tmp_path / "out")
    assert written["actv_0-0.csv"][0] == "vpp_stage,module_name,step,input.norm,output.norm"
    assert [line.split(",")[1] for line in written["actv_0-0.csv"][1:]] == ["_0", "0_0", "1_0", "2_0"]
    assert written["actv_grad_0-0.csv"][0] == "vpp_stage,module_name,step,input_grad.norm,output_grad.norm"
    assert written["param_0-0.csv"][0] == "param_name,step,norm"


def test_optimizer_and_number_are_distinguished_in_both_orders(config: Callable[..., Path]) -> None:
    for order in (slice(None), slice(None, None, -1)):
        training = Training()
        monitor = TrainerMon(config(wg_distribution=True, format="api"))
        monitor.set_monitor(training.model, *[training.optimizer, 1][order])
        gradient = training.step()[0]
        expected = {"norm": pytest.approx(np.linalg.norm(gradient), rel=1e-6)}
        reduced, unreduced = monitor.generate_wgrad_metrics()
        assert reduced["0:0.weight/post_grad"] == unreduced["0:0.weight/acc_grad"] == expected


def test_main_grad_is_read_where_there_is_one(config: Callable[..., Path]) -> None:
    training = Training()
    monitor = TrainerMon(config(wg_distribution=True, format="api"))
    monitor.set_monitor(training.model, training.optimizer)
    training.model[0].weight.main_grad = Tensor(np.full((4, 3), 2.0, np.float32))
    training.step()
    assert monitor.generate_wgrad_metrics()[0]["0:0.weight/post_grad"] == {"norm": pytest.approx(48**0.5)}


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"is_select": True}, {"0.output"}),
        ({}, {"0.output"}),
        ({"is_select": False}, {".input", ".output", *(f"{n}.{side}" for n in "12" for side in ("input", "output"))}),
    ],
)
def test_targets_are_all_unless_is_select_is_false(
    config: Callable[..., Path], tmp_path: Path, keys: dict[str, bool], names: set[str]
) -> None:
    training = Training()
    targets = {"0": {"output": "tensor"}}
    TrainerMon(config(xy_distribution=True, forward_only=True, targets=targets, **keys)).set_monitor(
        training.model, training.optimizer
    )
    training.step()
    lines = files(tmp_path / "out")["actv_0-0.csv"][1:]
    assert {line.split(",")[1] for line in lines} == names | {"0.output"}


def test_keys_that_are_not_followed_are_reported(config: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    training = Training()
    TrainerMon(config(cc_distribution={"enable": True}, l2_targets={"a": []})).set_monitor(
        training.model, training.optimizer
    )
    assert [record.message.split(": ", 1)[1] for record in caplog.records] == [
        "l2_targets is ignored: spectral and attention features are not recorded",
        "cc_distribution is ignored: MindSpore's communication functions are not monitored",
    ]


def test_a_key_that_is_unknown_is_refused(config: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="unknown key 'wgrad'; known: alert, all_xy"):
        TrainerMon(config(wgrad=True))


def test_dynamic_on_is_followed_from_the_next_step_until_as_much_was_collected(
    config: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNAMIC_MONITOR", "True")
    training = Training()
    path = config(dynamic_on=False)
    TrainerMon(path).set_monitor(training.model, training.optimizer)
    training.step()
    assert not (tmp_path / "out").exists()
    config(dynamic_on=True, wg_distribution=True, collect_times=2)
    os.utime(path, (1, 1))
    for _ in range(4):
        training.step()
    assert sorted(files(tmp_path / "out")) == [
        f"{task}_{step}-{step}.csv" for task in ("grad_reduced", "grad_unreduced") for step in (2, 3)
    ]
    assert json.loads(path.read_text())["dynamic_on"] is False
