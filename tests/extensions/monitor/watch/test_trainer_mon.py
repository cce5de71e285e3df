"""``TrainerMon``: its files, columns and names are msprobe's, whatever holds the gradients and steps the parameters."""

from __future__ import annotations

import gc
import json
import weakref
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from msprobe_hooks import ConfigError, TrainerMon
from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series import blocks
from tests.support.requirements import require

EVERYTHING = {
    "xy_distribution": True,
    "wg_distribution": True,
    "mv_distribution": True,
    "param_distribution": True,
    "mg_direction": True,
}


def files(folder):
    """Return names of files of the only run below a folder, without that of times, and their lines."""
    (run,) = folder.iterdir()
    return {path.name: path.read_text().splitlines() for path in run.iterdir() if path.name != blocks.FILE}


def test_files_and_columns_are_those_of_msprobe(config, trained, tmp_path):
    trained(TrainerMon(config(**EVERYTHING, ops=["norm", "min"], step_count_per_record=2)), 2, 2)
    written = files(tmp_path / "out")
    assert {name: lines[0] for name, lines in written.items()} == {
        "actv_0-1.csv": "vpp_stage,name,step,micro_step,norm,min",
        "actv_grad_0-1.csv": "vpp_stage,name,step,micro_step,norm,min",
        **{
            f"{task}_0-1.csv": "vpp_stage,name,step,norm,min"
            for task in ("grad_unreduced", "grad_reduced", "param_origin", "param_updated")
        },
        **{f"{task}_0-1.csv": "vpp_stage,name,step,norm,min" for task in ("exp_avg", "exp_avg_sq", "other")},
    }
    names = [line.split(",")[:4] for line in written["actv_0-1.csv"][1:4]]
    assert names == [["0", ".input", "0", "0"], ["0", "0.input", "0", "0"], ["0", "0.output", "0", "0"]]


def test_optimizer_and_number_are_distinguished_in_both_orders(config):
    for order in (slice(None), slice(None, None, -1)):
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor = TrainerMon(config(wg_distribution=True, format="api"))
        monitor.set_monitor(model, *[optimizer, 2][order])
        model(torch.ones(1, 2)).sum().backward()
        assert monitor.generate_wgrad_metrics()[1] == {}
        model(torch.ones(1, 2)).sum().backward()
        reduced, unreduced = monitor.generate_wgrad_metrics()
        assert reduced["0:weight/post_grad"] == unreduced["0:weight/acc_grad"] == {"norm": 8**0.5}


def test_a_target_chooses_module_side_and_element(config, trained, tmp_path):
    targets = {"0": {"input": "tuple[1]:0", "output_grad": "tensor"}}
    trained(TrainerMon(config(targets=targets, xy_distribution=True, wg_distribution=True)), 1)
    written = files(tmp_path / "out")
    assert [line.split(",")[1] for line in written["actv_0-0.csv"][1:]] == ["0.input"]
    assert [line.split(",")[1] for line in written["actv_grad_0-0.csv"][1:]] == ["0.output"]
    assert [line.split(",")[1] for line in written["grad_reduced_0-0.csv"][1:]] == ["0.weight", "0.bias"]


def test_an_element_that_is_not_there_is_reported(config, trained, caplog):
    trained(TrainerMon(config(targets={"0": {"input": "tuple[3]:1"}}, xy_distribution=True)), 2)
    reported = "not monitored: module '0': ValueError: its input has 1 elements, but targets requests tuple[3]:1"
    assert [record.message for record in caplog.records] == [reported]


def test_print_struct_writes_and_goes_on(config, trained, tmp_path):
    trained(TrainerMon(config(print_struct=True, stack_info=True, wg_distribution=True)), 2)
    written = files(tmp_path / "out")
    structure = json.loads("\n".join(written["module_struct.json"]))
    assert structure["0:0"] == {
        "input": {"config": "tuple[1]", "0": "size=(2, 3), dtype=torch.float32"},
        "output": {"config": "tensor", "tensor": "size=(2, 4), dtype=torch.float32"},
    }
    assert written["stack_info.csv"][0] == "module_name,stack_info"
    assert "grad_reduced_1-1.csv" in written


def test_short_names_are_those_of_msprobe_and_never_shared(config, tmp_path):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2)])})
            self.decoder = nn.ModuleDict({"layers": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])})

        def forward(self, x):
            for one in (*self.encoder["layers"], *self.decoder["layers"]):
                x = one(x)
            return x

    model = Both()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    TrainerMon(config(wg_distribution=True)).set_monitor(model, 1, optimizer)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    names = [line.split(",")[1] for line in files(tmp_path / "out")["grad_reduced_0-0.csv"][1:]]
    assert names == [
        "encoder.layers.0.weight",
        "encoder.layers.0.bias",
        "decoder.layers.0.weight",
        "decoder.layers.0.bias",
        "1.weight",
        "1.bias",
    ]


def test_main_grad_is_read_where_there_is_one(config):
    model = nn.Linear(2, 1, bias=False)
    model.weight.main_grad = torch.zeros(1, 2)
    accumulation = model.weight.expand_as(model.weight).grad_fn.next_functions[0][0]

    def add(*_):
        model.weight.main_grad += model.weight.grad
        model.weight.grad = None

    accumulation.register_hook(add)
    monitor = TrainerMon(config(wg_distribution=True, format="api"))
    monitor.set_monitor(model, 2, torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()
    reduced, unreduced = monitor.generate_wgrad_metrics()
    assert reduced["0:weight/post_grad"] == unreduced["0:weight/acc_grad"] == {"norm": 8**0.5}


def test_an_optimizer_around_another_is_looked_through(config, tmp_path):
    class Around:
        def __init__(self, optimizer, model):
            self.optimizer = optimizer
            self.float16_groups = [list(model.parameters())]
            self.fp32_from_float16_groups = [[one for group in optimizer.param_groups for one in group["params"]]]

        def step(self):
            for half, whole in zip(self.float16_groups[0], self.fp32_from_float16_groups[0], strict=True):
                whole.grad = half.grad.float()
            self.optimizer.step()

    model = nn.Linear(2, 1).bfloat16()
    optimizer = Around(torch.optim.AdamW([one.detach().float() for one in model.parameters()]), model)
    TrainerMon(config(mv_distribution=True)).set_monitor(model, optimizer)
    for _ in range(2):
        model(torch.ones(1, 2, dtype=torch.bfloat16)).sum().backward()
        optimizer.step()
    lines = files(tmp_path / "out")["exp_avg_1-1.csv"]
    assert lines[1:] == ["0,weight,1,0.141421", "0,bias,1,0.1"]


def test_statistics_can_be_changed_while_it_runs(config, trained, tmp_path):
    monitor = TrainerMon(config(wg_distribution=True))

    def change():
        monitor.ops = ["min", "max"]

    trained(monitor, 2, before_step=change)
    headers = [
        (folder / f"grad_reduced_{step}-{step}.csv").read_text().split("\n")[0]
        for step, folder in enumerate(sorted((tmp_path / "out").iterdir(), key=lambda one: one.stat().st_mtime))
    ]
    assert headers == ["vpp_stage,name,step,norm", "vpp_stage,name,step,min,max"]


def test_a_tensor_of_the_program_is_written_on_the_ranks_that_are_named(config, trained, tmp_path):
    monitor = TrainerMon(config(wg_distribution=True, ops=["min", "max"]))
    trained(monitor, 1, before_step=lambda: monitor.adhoc_check(torch.tensor([1.0, 2.0]), "loss", "mask", [0], ["max"]))
    assert files(tmp_path / "out")["other_0-0.csv"] == ["vpp_stage,name,step,min,max", "0,loss.mask,0,1.0,2.0"]
    with pytest.raises(ConfigError, match=r"ops_list is 'mean'; allowed: max, min \(the statistics of ops\)"):
        monitor.adhoc_check(torch.ones(1), "loss", "mask", [], ["mean"])


def test_a_model_that_no_one_trains_any_more_is_freed_and_its_files_are_finished(config, trained, tmp_path):
    require(find_spec("pyarrow"), "pyarrow")
    watched = {"xy_distribution": True, "wg_distribution": True, "mv_distribution": True, "param_distribution": True}
    monitor = TrainerMon(config(**watched, format="parquet", step_count_per_record=100))
    trained(monitor, 2)
    model = weakref.ref(monitor._watcher.models[0])
    del monitor
    gc.collect()
    assert model() is None
    (folder,) = (tmp_path / "out").iterdir()
    assert (folder / "grad_reduced_0-1.parquet").is_file()


class TestAFolderThatIsGoneOnWith:
    def test_steps_go_into_the_folder_that_was_started_then(self, config, trained, tmp_path):
        trained(TrainerMon(config(wg_distribution=True)), 2)
        (folder,) = (tmp_path / "out").iterdir()
        time = folder.name.partition("-rank")[0]
        model = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor = TrainerMon(config(wg_distribution=True, append_output=[time, time]))
        monitor.set_monitor(model, optimizer=optimizer, start_iteration=1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        names = [line.split(",")[1] for line in files(tmp_path / "out")["grad_reduced_1-1.csv"]]
        assert names == ["name", "0.weight", "0.bias", "2.weight", "2.bias", "weight", "bias"]

    def test_where_there_is_none_it_says_which_there_are(self, config, trained, tmp_path):
        (tmp_path / "out/Dec03_21-34-40-rank0-1d6d9d83").mkdir(parents=True)
        (tmp_path / "out/Dec03_21-34-41-rank1-1d6d9d83").mkdir()
        reported = "no folder to append to, of rank 0 and started from .*-41 to .*-42; existing: Dec03_21-34-40-rank0-1"
        with pytest.raises(MonitorError, match=reported):
            trained(TrainerMon(config(append_output=["Dec03_21-34-41", "Dec03_21-34-42"])))
