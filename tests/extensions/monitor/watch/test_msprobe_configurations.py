"""``TrainerMon`` and msprobe's: the same files and numbers for the configurations of msprobe's own tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from msprobe_hooks import TrainerMon
from msprobe_hooks.extensions.monitor.series import blocks
from tests.support.trainings.monitor_configurations import CONFIGURATIONS, FORGOTTEN, train, write, written

DATA = Path(__file__).parents[3] / "data" / "monitor_configurations"

_ACTIVATIONS = {f"{task}_{step}-{step}.csv" for task in ("actv", "actv_grad") for step in (0, 1)}
#: What msprobe does not write: 1.2.2 knows neither parameters after a step nor stacks, 26.2.0 no updates, and neither
#: trains on when the structure is printed.
NOT_IN_MSPROBE = {
    ("all", "1.2.2"): {"param_updated_0-2.csv"},
    ("all_but_the_bias_stepped", "1.2.2"): {"param_updated_0-2.csv"},
    ("stack", "1.2.2"): {"stack_info.csv"},
    ("ur", "26.2.0"): {"events"},
    ("struct", "1.2.2"): _ACTIVATIONS,
    ("struct", "26.2.0"): _ACTIVATIONS,
}


@pytest.mark.parametrize("name", CONFIGURATIONS | FORGOTTEN)
def test_files_and_numbers_are_those_of_msprobe(name, tmp_path, monkeypatch):
    if name == "ur":
        pytest.importorskip("tensorboard")
    monkeypatch.setenv("MONITOR_OUTPUT_DIR", str(tmp_path / "out"))
    monitor = TrainerMon(
        write((CONFIGURATIONS | FORGOTTEN)[name], tmp_path / "config.json"), params_have_main_grad=False
    )
    if name == "cc":
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        train(monitor, forgets_bias=name in FORGOTTEN, reduces=name == "cc")
        monitor._watcher.close()
    finally:
        if name == "cc":
            torch.distributed.destroy_process_group()
    ours = written(tmp_path / "out")
    for version in ("1.2.2", "26.2.0"):
        expected = json.loads((DATA / f"{version}.json").read_text())[name]
        # The parameters of 1.2.2 are those before the step.
        theirs = {file.replace("param_0", "param_origin_0"): cells for file, cells in expected.items()}
        assert ours.keys() - theirs.keys() - {blocks.FILE} == NOT_IN_MSPROBE.get((name, version), set())
        for file, cells in theirs.items():
            assert ours[file] == pytest.approx(cells, abs=2e-6), (version, file)
