from __future__ import annotations

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.extensions.overflow import recorder as of_any_framework
from msprobe_hooks.extensions.overflow.anomaly import (
    BUILT_IN,
    AnomalyKind,
    find_scene,
    is_ignored,
    read_record_io,
)
from msprobe_hooks.extensions.overflow.torch_recorder import TorchOverflowRecorder
from msprobe_hooks.recording.config import settings
from msprobe_hooks.torch.session import TorchSession


class HostAsDevice(TorchOverflowRecorder):
    """Waits for what the host has as for what a device has."""

    def is_finite(self, tensor):
        return None if super().is_finite(tensor) is not True or tensor.is_floating_point() else True


@pytest.fixture(params=["host", "device"])
def look(request, tmp_path):
    """Look for overflow in a program; return the recorder, whose dump is in ``tmp_path / "dump"``."""

    def run(program, overflow_nums=-1, model=None, **options):
        wanted = settings(tmp_path / "dump", task="overflow_check", overflow_nums=overflow_nums, **options)
        recorder = (HostAsDevice if request.param == "device" else TorchOverflowRecorder)(wanted)
        session = TorchSession(wanted, model, recorder)
        session.start()
        program()
        session.close()
        return recorder

    return run


def names(recorder):
    return [overflow.name for overflow in recorder.overflows]


def attention(scale=1.0):
    """Masked attention, whose scores overflow where the scale is large."""
    torch.manual_seed(0)
    x = torch.randn(2, 4, 8, requires_grad=True)
    scores = x @ x.transpose(1, 2) * scale
    mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
    weights = torch.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
    loss = (weights @ x).square().sum()
    loss.backward()
    return loss.detach(), x.grad


def test_a_step_without_overflow_leaves_no_files(look, tmp_path):
    found = look(attention)
    assert found.summary.looked_at > 10
    assert list((tmp_path / "dump").rglob("*")) == []
    assert str(found.summary).startswith("no inf or nan arises, so nothing was written: checked ")


def test_only_the_call_in_which_it_arises_is_written_with_its_tensors(look, tmp_path, records):
    x = torch.tensor([1.0, 200.0])

    def program():
        (torch.exp(x * 1) + 1).sum()

    assert names(look(program)) == ["Torch.exp.0.forward"]
    assert list(records(tmp_path / "dump")) == ["Torch.exp.0.forward"]
    files = tmp_path / "dump/step0/rank/dump_tensor_data"
    assert torch.equal(torch.load(files / "Torch.exp.0.forward.input.0.pt"), x)
    assert torch.equal(torch.load(files / "Torch.exp.0.forward.output.0.pt"), torch.exp(x))


def test_masks_of_infinity_and_of_the_least_number_are_no_overflow(look):
    def program():
        scores = torch.randn(64, 64)
        lowest = torch.where(scores > 0, scores, torch.finfo(torch.float32).min)
        infinite = scores.masked_fill(scores > 0, float("-inf"))
        torch.softmax(lowest, -1), torch.softmax(infinite, -1), torch.empty(3).fill_(float("inf"))

    assert names(look(program)) == []


def test_half_precision_sums_do_not_overflow(look):
    assert names(look(lambda: torch.full((1000,), 60000.0, dtype=torch.float16) * 1.0)) == []
    assert names(look(lambda: torch.full((3,), 60000.0, dtype=torch.float16) * 2.0)) == ["Tensor.__mul__.0.forward"]


def test_a_gradient_in_which_it_arises_is_written_after_its_call(look, tmp_path, records):
    x = torch.zeros(3, requires_grad=True)
    found = look(lambda: torch.sqrt(x).sum().backward())
    assert names(found) == ["Torch.sqrt.0.backward"]
    assert list(records(tmp_path / "dump")) == ["Torch.sqrt.0.forward", "Torch.sqrt.0.backward"]
    assert "test_torch.py" in found.overflows[0].frames[0]


def test_what_is_written_is_found_by_the_mode_overflow(look, tmp_path):
    look(lambda: attention(1e38))
    dump = read_dump(tmp_path / "dump/step0/rank/dump.json")
    scenes = [find_scene(read_record_io(dump, name)) for name in dump.records]
    assert [finding.scene for finding in scenes if finding] == [AnomalyKind.ARISES]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_weight_that_holds_nan_or_inf_is_named_at_its_first_use(look, tmp_path, value):
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    model[1].weight.data[0, 1] = value

    def run():
        mask = torch.full((2, 3), -math.inf)
        torch.softmax(mask.tril(), -1)
        model(torch.ones(2, 3)).sum().backward()

    found = look(run)
    assert names(found)[0] == "Functional.linear.1.forward"
    said = "comes in with an input, and no call that was recorded before returned any (input.1)"
    assert said in str(found.overflows[0])


def test_a_row_that_is_masked_throughout_is_where_nan_begins(look):
    def run():
        scores = torch.zeros(2, 3).masked_fill(torch.tensor([[True], [False]]), -math.inf)
        torch.exp(torch.softmax(scores, -1))

    assert names(look(run)) == ["Torch.softmax.0.forward"]


def test_a_question_about_a_tensor_hides_no_weight_that_holds_nan(look):
    weight = torch.tensor([math.nan], requires_grad=True)

    def run():
        if torch.tensor([math.nan]):
            torch.exp(weight)

    assert names(look(run)) == ["Torch.exp.0.forward"]


def test_nan_that_an_assignment_wrote_is_no_input_that_no_call_gave(look):
    def run():
        x = torch.ones(3)
        x[0] = math.nan
        torch.exp(x)

    assert names(look(run)) == []


def programs():
    def chain():
        x = torch.tensor([-1.0, 0.0, 300.0], requires_grad=True)
        y = torch.sqrt(x.exp()) + torch.log(x.detach().relu())
        (y / (x * 0)).nan_to_num(0, 0, 0).sum().backward()

    def in_place():
        x = torch.full((4,), 1e30)
        y = x * 1e5
        y.mul_(1e5).add_(1).relu_().mul_(2)
        F.relu(y, inplace=True)
        y[0] = float("nan")
        torch.clamp(y, 0, 1).div_(0.0)

    def vanishing():
        base = torch.tensor([0.5, 2.0], requires_grad=True)
        torch.pow(base, torch.tensor([float("inf"), 2.0])).sum().backward()
        torch.log(torch.zeros(2, requires_grad=True)).sum().backward()

    return {"chain": chain, "in place": in_place, "vanishing": vanishing, "attention": lambda: attention(1e38)}


@pytest.mark.parametrize("program", programs())
def test_the_same_calls_are_found_as_in_a_dump_of_all_statistics(look, tmp_path, program):
    run = programs()[program]
    with record(tmp_path / "all"):
        run()
    dump = read_dump(tmp_path / "all/step0/rank/dump.json")
    findings = {name: find_scene(read_record_io(dump, name)) for name in dump.records}
    arising = [
        name
        for name, finding in findings.items()
        if finding is not None and finding.scene is AnomalyKind.ARISES and not is_ignored(finding, name, BUILT_IN)
    ]
    assert arising
    assert names(look(run)) == arising


def test_an_input_that_was_written_over_is_marked_and_not_written(look, tmp_path, records):
    def program():
        x = torch.tensor([1.0, 1e38])
        x.mul_(1e3)

    assert names(look(program)) == ["Tensor.mul_.0.forward"]
    (body,) = records(tmp_path / "dump").values()
    assert body["details"] == {"input.0": {"values": "overwritten"}}
    assert body["input_args"][0]["Max"] is None
    assert "data_name" not in body["input_args"][0]
    assert body["output"][0]["data_name"] == "Tensor.mul_.0.forward.output.0.pt"


def test_what_was_known_of_a_freed_tensor_is_not_taken_for_another_in_its_place(look):
    # Python gives the ids of what it frees to what it makes next.
    def program():
        for _ in range(20):
            torch.exp(torch.tensor([1000.0]))
            torch.tensor([1e30]).mul_(1e30)

    assert len(names(look(program))) == 40


def test_recording_ends_after_as_many_as_are_wanted(tmp_path, records):
    x = torch.tensor([1e3])
    with record(tmp_path, task="overflow_check", overflow_nums=2) as session:
        for _ in range(5):
            torch.exp(x)
        looked_at = session.summary.looked_at
        session.step()
        torch.exp(x)
    assert list(records(tmp_path)) == ["Torch.exp.0.forward", "Torch.exp.1.forward"]
    assert looked_at == session.summary.looked_at == 2
    assert not (tmp_path / "step1").exists()


def test_a_module_is_not_blamed_for_what_arises_within_it(look):
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Softplus()))
    with torch.no_grad():
        model[0][0].weight.fill_(3e38)
    assert names(look(lambda: model(torch.ones(1, 2)), model=model, level="mix")) == ["Functional.linear.0.forward"]


def test_losses_and_gradients_are_the_same_bits(look):
    plain = attention()
    found = []
    look(lambda: found.extend(attention()))
    assert all(torch.equal(one, other) for one, other in zip(plain, found, strict=True))


def test_the_ring_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(of_any_framework, "_RING_BYTES", 1000)
    wanted = settings(tmp_path, task="overflow_check")
    recorder = HostAsDevice(wanted)
    session = TorchSession(wanted, None, recorder)
    session.start()
    waiting = []
    for _ in range(20):
        torch.full((50,), 2.0)
        waiting.append(recorder._ring_bytes)
    session.close()
    assert sorted(set(waiting)) == [0, 200, 400, 600, 800, 1000]


def test_calls_in_the_ring_keep_no_graph_alive(tmp_path):
    wanted = settings(tmp_path, task="overflow_check")
    session = TorchSession(wanted, None, HostAsDevice(wanted))
    session.start()
    x = torch.ones(3, requires_grad=True)
    dead = []

    class Node(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.kept = Kept()
            return x * 2

    class Kept:
        def __del__(self):
            dead.append(self.__class__.__name__)

    y = Node.apply(x) * 3
    del y
    torch.ones(3) + 1
    assert dead == ["Kept"]
    session.close()


@pytest.mark.parametrize("task", ["overflow_check", "nan_check"])
def test_the_debugger_takes_the_task_from_its_file(tmp_path, records, task):
    from msprobe_hooks import PrecisionDebugger

    config = tmp_path / "config.json"
    config.write_text(json.dumps({"task": task, "dump_path": str(tmp_path / "dump"), task: {"list": ["exp"]}}))
    debugger = PrecisionDebugger(config_path=config)
    try:
        for _ in range(2):
            debugger.start()
            torch.exp(torch.tensor([1e3])) * 2
            torch.log(torch.zeros(2))
            debugger.stop()
            debugger.step()
    finally:
        debugger._finish()
    assert list(records(tmp_path / "dump")) == ["Torch.exp.0.forward"]
    assert (tmp_path / "dump/step1").exists() is (task == "nan_check")


def test_a_model_without_a_level_means_modules_and_calls(tmp_path):
    with record(tmp_path / "d", model=nn.Linear(2, 2), task="overflow_check") as session:
        pass
    assert session.recorder.settings.level == "mix"
