from __future__ import annotations

import dataclasses
import json
import sys
import types

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks import ConfigError, RecordingError, record


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.act(self.fc(x)) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.block(x))


def net():
    torch.manual_seed(3)
    return Net(), torch.randn(5, 4)


def test_level_l0_records_every_module_but_the_model_itself(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "L0", model=model):
        model(x)
    assert list(records(tmp_path / "d")) == [
        "Module.block.fc.Linear.forward.0",
        "Module.block.act.ReLU.forward.0",
        "Module.block.Block.forward.0",
        "Module.head.Linear.forward.0",
    ]


def test_a_module_shows_inputs_before_and_parameters(tmp_path, records):
    model, x = net()
    before = model.block.fc(x).min().item()
    with record(tmp_path / "d", "L0", model=model):
        model(x)
    found = records(tmp_path / "d")
    assert found["Module.block.act.ReLU.forward.0"]["input_args"][0]["Min"] == before
    assert found["Module.block.act.ReLU.forward.0"]["output"][0]["Min"] == 0.0
    assert list(found["Module.head.Linear.forward.0"]["parameters"]) == ["weight", "bias"]


def test_module_gradients_are_those_of_a_full_backward_hook(tmp_path, records):
    model, x = net()
    x.requires_grad_()
    want = {}
    handle = model.block.register_full_backward_hook(lambda m, gi, go: want.update(input=go[0], output=gi[0]))
    model(x).sum().backward()
    handle.remove()
    with record(tmp_path / "d", "L0", model=model):
        model(x).sum().backward()
    body = records(tmp_path / "d")["Module.block.Block.backward.0"]
    assert body["input"][0]["Norm"] == pytest.approx(want["input"].norm().item(), rel=1e-6)
    assert body["output"][0]["Norm"] == pytest.approx(want["output"].norm().item(), rel=1e-6)


def test_parameter_gradients_are_recorded_once_all_arrived(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "L0", model=model):
        model(x).sum().backward()
    found = records(tmp_path / "d")
    for name, module in (("block.fc", model.block.fc), ("head", model.head)):
        body = found[f"Module.{name}.Linear.parameters_grad.0"]
        assert set(body) == {"weight", "bias"}
        assert body["weight"][0]["Norm"] == pytest.approx(module.weight.grad.norm().item(), rel=1e-6)


def test_mix_records_calls_inside_their_modules(tmp_path, records):
    model, x = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    with record(tmp_path / "d", "mix", model=model):
        model(x).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False)
        optimizer.step()
    parents = json.loads((tmp_path / "d/step0/rank/construct.json").read_text())
    assert parents["Functional.linear.0.forward"] == "Module.block.fc.Linear.forward.0"
    assert parents["Functional.linear.0.backward"] == "Module.block.fc.Linear.backward.0"
    assert parents["Module.block.fc.Linear.forward.0"] == "Module.block.Block.forward.0"
    assert parents["Module.head.Linear.forward.0"] is None
    assert parents["optimizer"] is None
    assert "optimizer" in {parent for name, parent in parents.items() if name.startswith("Tensor.")}
    assert "clip_grad" in parents.values()


@pytest.mark.parametrize("named", [False, True])
def test_what_a_closure_runs_is_not_in_the_optimizer(tmp_path, named):
    model, x = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)

    def training_step():
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss

    with record(tmp_path / "d", "mix", model=model):
        loss = optimizer.step(closure=training_step) if named else optimizer.step(training_step)
    assert loss.requires_grad
    parents = json.loads((tmp_path / "d/step0/rank/construct.json").read_text())
    assert parents["Functional.linear.0.forward"] == "Module.block.fc.Linear.forward.0"
    assert parents["Functional.linear.0.backward"] == "Module.block.fc.Linear.backward.0"
    assert {name.split(".")[1] for name, parent in parents.items() if parent == "optimizer"} <= {"add_", "mul_", "add"}
    assert "optimizer" in parents.values()


def test_an_optimizer_that_runs_its_closure_again_and_again_makes_the_same_step(tmp_path):
    def trained(folder):
        torch.manual_seed(0)
        model, x = net()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

        def training_step():
            optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            return loss

        if folder is None:
            optimizer.step(training_step)
        else:
            with record(folder, "L1"):
                optimizer.step(training_step)
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    assert torch.equal(trained(tmp_path / "d"), trained(None))


def test_clipping_returns_its_norm_while_recording(tmp_path):
    model, x = net()
    with record(tmp_path / "d", "mix", model=model):
        model(x).sum().backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).item() > 0


def test_the_clipping_of_megatron_is_a_phase(tmp_path, records, monkeypatch):
    megatron = types.ModuleType("megatron.core.optimizer")
    exec(
        "class MegatronOptimizer:\n"
        "    def clip_grad_norm(self, clip_grad):\n"
        "        for gradient in self.gradients: gradient.mul_(clip_grad)\n"
        "        return 2.0\n",
        megatron.__dict__,
    )
    monkeypatch.setitem(sys.modules, "megatron.core.optimizer", megatron)
    model, x = net()
    optimizer = megatron.MegatronOptimizer()
    before = megatron.MegatronOptimizer.clip_grad_norm.__code__
    with record(tmp_path / "d", "mix", model=model):
        model(x).sum().backward()
        optimizer.gradients = [model.head.weight.grad]
        assert optimizer.clip_grad_norm(0.5) == 2.0
    parents = json.loads((tmp_path / "d/step0/rank/construct.json").read_text())
    assert parents["Tensor.mul_.0.forward"] == "clip_grad"
    assert megatron.MegatronOptimizer.clip_grad_norm.__code__ is before


def test_models_in_a_list_are_numbered(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "L0", model=[model, Net()]):
        model(x)
    assert "Module.0.head.Linear.forward.0" in records(tmp_path / "d")


def test_a_module_that_raises_leaves_a_record_and_the_next_has_the_right_parent(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "mix", model=model):
        with pytest.raises(RuntimeError):
            model(x[:, :3])
        model(x)
    found = records(tmp_path / "d")
    assert "RuntimeError" in found["Module.block.fc.Linear.forward.0"]["exception"]
    assert "RuntimeError" in found["Module.block.Block.forward.0"]["exception"]
    parents = json.loads((tmp_path / "d/step0/rank/construct.json").read_text())
    assert parents["Module.block.Block.forward.1"] is None


def test_hooks_of_the_model_keep_working_and_ours_leave(tmp_path):
    model, x = net()
    seen = []
    model.head.register_forward_hook(lambda *_: seen.append("forward"))
    with record(tmp_path / "d", "L0", model=model):
        model(x)
    assert seen == ["forward"]
    assert len(model.head._forward_hooks) == 1
    assert not model.head._forward_pre_hooks


def test_modules_without_a_model_are_refused(tmp_path):
    with (
        pytest.raises(ConfigError, match=r"level 'L0' needs model=: a torch\.nn\.Module"),
        record(tmp_path / "d", "L0"),
    ):
        pass


def test_a_folder_that_is_taken_leaves_the_model_without_hooks(tmp_path):
    model, x = net()
    with record(tmp_path / "d", "mix", model=model):
        model(x)
    with pytest.raises(RecordingError):
        record(tmp_path / "d", "mix", model=model).__enter__()
    assert not model.head._forward_hooks


def test_the_structure_task_writes_names_and_parents_only(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "mix", model=model, task="structure"):
        model(x)
    assert records(tmp_path / "d") == {}
    assert "Functional.linear.0.forward" in json.loads((tmp_path / "d/step0/rank/construct.json").read_text())
    assert json.loads((tmp_path / "d/step0/rank/stack.json").read_text())


def test_a_list_entry_that_names_a_module_keeps_what_runs_inside(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "mix", model=model, list=["Module.block.Block.forward"]):
        model(x)
    names = list(records(tmp_path / "d"))
    assert "Functional.relu.0.forward" in names
    assert "Module.head.Linear.forward.0" not in names


def test_aten_records_every_operator(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "aten"):
        model(x).sum().backward()
    names = list(records(tmp_path / "d"))
    assert "Aten.addmm.default.0.forward" in names
    assert "Aten.add.Tensor.0.forward" in names


def test_gradients_of_a_module_follow_those_of_what_ran_inside_it(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "mix", model=model):
        model(x.requires_grad_()).sum().backward()
    order = list(records(tmp_path / "d"))
    assert order.index("Functional.linear.1.backward") < order.index("Module.head.Linear.backward.0")
    assert order.index("Module.block.fc.Linear.backward.0") < order.index("Module.block.Block.backward.0")


def test_parameter_gradients_are_no_nodes_of_the_tree(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "L0", model=model):
        model(x).sum().backward()
    assert "Module.head.Linear.parameters_grad.0" in records(tmp_path / "d")
    tree = json.loads((tmp_path / "d" / "step0" / "rank" / "construct.json").read_text())
    assert [name for name in tree if "parameters_grad" in name] == []


def test_fields_of_an_output_that_are_none_are_kept(tmp_path, records):
    @dataclasses.dataclass
    class Output:
        hidden: torch.Tensor
        cache: object = None

    class Returning(nn.Module):
        def forward(self, x):
            return Output(x + 1)

    model = nn.Sequential(Returning())
    with record(tmp_path / "d", "L0", model=model):
        model(torch.ones(2))
    (body,) = records(tmp_path / "d").values()
    assert body["output"][0]["cache"] is None


def test_recomputed_modules_say_so(tmp_path, records):
    model, x = net()
    with record(tmp_path / "d", "L0", model=model):
        checkpoint(model.block, x.requires_grad_(), use_reentrant=False).sum().backward()
    found = records(tmp_path / "d")
    assert found["Module.block.fc.Linear.forward.0"]["is_recompute"] is False
    assert found["Module.block.fc.Linear.forward.1"]["is_recompute"] is True


def test_a_model_without_a_level_means_modules_and_calls(tmp_path):
    with record(tmp_path / "d", model=nn.Linear(2, 2)) as session:
        pass
    assert session.recorder.settings.level == "mix"


def test_without_a_model_and_by_an_own_level_only_calls_are_recorded(tmp_path):
    with record(tmp_path / "a") as session:
        pass
    assert session.recorder.settings.level == "L1"
    with record(tmp_path / "b", "L1", model=nn.Linear(2, 2)) as session:
        pass
    assert session.recorder.settings.level == "L1"
