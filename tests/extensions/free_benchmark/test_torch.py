from __future__ import annotations

import csv
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks import ConfigError, PrecisionDebugger
from tests.support.trainings.free_benchmark import run_free_benchmark


@pytest.fixture
def benchmark(tmp_path):
    """Run a program under the free benchmark, a step each time; return the rows of all steps and the summary."""

    def run(*programs, **section):
        summary = run_free_benchmark(PrecisionDebugger, tmp_path, programs, section)
        tables = sorted((tmp_path / "dump").rglob("free_benchmark.csv"))
        return [row for table in tables for row in csv.DictReader(table.read_text().splitlines())], summary

    return run


def training(seed=0):
    """Return loss, gradients, buffers and the next random numbers of a step that draws and writes in place."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Flatten())
    x = torch.randn(2, 1, 8, 8)
    y = model(x).add_(1)
    y[0] = y[1] * 2
    loss = F.softmax(y, -1).log().mean()
    loss.backward()
    return [loss.detach(), *(one.grad for one in model.parameters()), *model.buffers(), torch.rand(2)]


@pytest.mark.parametrize("mode", ["add_noise", "bit_noise", "change_value", "no_change", "to_cpu"])
@pytest.mark.parametrize("stage", ["forward", "backward"])
def test_a_check_changes_no_bit_of_the_training(benchmark, mode, stage):
    plain, found = training(), []
    device = "cpu" if mode == "to_cpu" else "npu"
    _, summary = benchmark(
        lambda: found.extend(training()), pert_mode=mode, fuzz_stage=stage, fuzz_device=device, list=["."]
    )
    assert len(plain) == len(found)
    assert all(torch.equal(one, other) for one, other in zip(plain, found, strict=True))
    assert summary.perturbed > 3
    assert not summary.errors


def test_what_changes_too_much_is_a_row_of_the_table(benchmark, tmp_path):
    x = torch.tensor([3.0, 2.0, 1.0])

    def program():
        x * 2
        x.sum()

    rows, summary = benchmark(program, program, pert_mode="change_value", list=["__mul__"])
    expected = {
        "rank": "",
        "pert_mode": "change_value",
        "stage": "forward",
        "step": "0",
        "api_name": "Tensor.__mul__.0.forward",
        # 6, 4, 2 against 2, 4, 6
        "max_rel": "2.0",
        "dtype": "torch.float32",
        "shape": "torch.Size([3])",
        "output_index": "",
    }
    assert rows == [expected, expected | {"step": "1"}]
    assert summary.inconsistent == {"Tensor.__mul__": 2}
    assert json.loads((tmp_path / "dump/step0/rank/dump.json").read_text())["data"] == {}


def test_what_is_consistent_leaves_no_table(benchmark):
    rows, summary = benchmark(lambda: training(), pert_mode="no_change")
    assert rows == []
    assert summary.inconsistent.total() == 0
    assert "calls were repeated with perturbed inputs" in str(summary)


def similar():
    """Return two tensors in bfloat16 whose similarity several roundings go into."""
    torch.manual_seed(0)
    return torch.rand(2, 64, 8).bfloat16()


def test_calls_in_inference_mode_are_made_again(benchmark):
    found = []

    def program():
        with torch.inference_mode():
            x = torch.tensor([3.0, 2.0, 1.0]) * 2
            found.append(x.add_(1))

    rows, summary = benchmark(program, pert_mode="change_value", list=["__mul__", "add_"])
    # 6, 4, 2 against 2, 4, 6, and 7, 5, 3 against 3, 5, 7
    assert [float(row["max_rel"]) for row in rows] == pytest.approx([2, 4 / 3])
    assert torch.equal(found[0], torch.tensor([7.0, 5.0, 3.0]))
    assert summary.perturbed == 2


def test_a_call_in_low_precision_is_improved(benchmark):
    x, y = similar()

    def program():
        F.cosine_similarity(x, y)
        torch.ones(3) + 1

    rows, summary = benchmark(program)
    ratio = F.cosine_similarity(x, y).float() / F.cosine_similarity(x.float(), y.float())
    assert [row["api_name"] for row in rows] == ["Functional.cosine_similarity.0.forward"]
    assert float(rows[0]["max_rel"]) == pytest.approx(max(ratio.max(), (1 / ratio).max()).item() - 1)
    assert summary.left_out["no float16 or bfloat16 tensor whose precision could be improved"] == 1


def test_gradients_are_compared_with_those_of_perturbed_inputs(benchmark):
    x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)

    def program():
        (x**2).sum().backward()
        x.grad = None

    rows, _ = benchmark(program, pert_mode="change_value", fuzz_stage="backward", list=["__pow__"])
    assert [(row["api_name"], row["stage"], row["max_rel"]) for row in rows] == [
        ("Tensor.__pow__.0.backward", "backward", "3.0")
    ]


def test_gradients_of_a_call_under_autocast_are_compared_under_autocast(benchmark):
    x, w = (tensor.float().requires_grad_() for tensor in similar())

    def program():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.linear(x, w)
        y.float().square().mean().backward()

    rows, summary = benchmark(program, pert_mode="no_change", fuzz_stage="backward", list=["linear"])
    assert rows == []
    assert summary.perturbed == 1


def test_a_tensor_that_is_given_twice_has_one_gradient(benchmark):
    x = torch.tensor([1.0, 2.0, 4.0], requires_grad=True)

    def program():
        torch.stack([x * x, x]).sum().backward()

    rows, summary = benchmark(program, pert_mode="no_change", fuzz_stage="backward", list=["__mul__"])
    assert rows == []
    assert summary.perturbed == 1


def test_fix_goes_on_with_the_other_result(benchmark):
    x, y = similar()
    found = []
    rows, summary = benchmark(lambda: found.append(F.cosine_similarity(x, y)), handler_type="fix")
    assert torch.equal(found[0], F.cosine_similarity(x.float(), y.float()).bfloat16())
    assert not torch.equal(found[0], F.cosine_similarity(x, y))
    assert rows == []
    assert summary.fixed == 1


def test_fix_leaves_inputs_as_they_are_and_changes_what_is_changed_in_place(benchmark):
    x = torch.randn(8, dtype=torch.bfloat16)
    before = x.clone()
    y = x.clone()

    def program():
        x.view(2, 4)
        y.mul_(1.1).exp_()

    benchmark(program, handler_type="fix")
    assert torch.equal(x, before)
    assert torch.equal(y, (before.float() * 1.1).bfloat16().float().exp().bfloat16())


def test_a_fixed_result_keeps_its_place_in_the_graph(benchmark):
    x = torch.full((8,), 0.5, dtype=torch.bfloat16, requires_grad=True)
    benchmark(lambda: torch.exp(x).sum().backward(), handler_type="fix", pert_mode="to_cpu", fuzz_device="cpu")
    assert torch.equal(x.grad, x.detach().float().exp().bfloat16())


def test_thresholds_are_learned_from_the_first_steps(benchmark):
    x = torch.tensor([1.0, 1.01])
    section = {"pert_mode": "change_value", "if_preheat": True, "preheat_step": 3, "list": ["exp"]}
    # From 2.05, two steps of samples within it leave 1 + 1.05 / 4; the ratio is exp(0.01).
    rows, _ = benchmark(*[lambda: torch.exp(x)] * 4, **section)
    assert rows == []


def test_a_change_beyond_what_was_learned_is_reported(benchmark):
    near, far = torch.tensor([1.0, 1.01]), torch.tensor([1.0, 1.5])
    programs = [*[lambda: torch.exp(near)] * 3, lambda: torch.exp(far)]
    rows, _ = benchmark(*programs, pert_mode="change_value", if_preheat=True, preheat_step=3, list=["exp"])
    assert [row["step"] for row in rows] == ["3"]


@pytest.mark.parametrize(
    ("section", "wrong"),
    [
        ({"pert_mode": "exchange_value"}, "free_benchmark.pert_mode is 'exchange_value'; allowed: improve_precision"),
        ({"handler_type": "auto_fix"}, "free_benchmark.handler_type is 'auto_fix'; allowed: check, fix"),
        ({"fuzz_level": "L0"}, "free_benchmark.fuzz_level is 'L0'; allowed: L1"),
        ({"fuzz_stage": "both"}, "free_benchmark.fuzz_stage is 'both'; allowed: forward, backward"),
        ({"fuzz_device": "cpu"}, "free_benchmark.fuzz_device is 'cpu'; allowed: cpu with to_cpu, else npu"),
        ({"pert_mode": "to_cpu"}, "free_benchmark.fuzz_device is 'npu'; allowed: cpu with to_cpu"),
        ({"fuzz_device": "cuda"}, "free_benchmark.fuzz_device is 'cuda'; allowed: npu, cpu"),
        ({"if_preheat": 1}, "free_benchmark.if_preheat is 1; allowed: true or false"),
        ({"preheat_step": 0}, "free_benchmark.preheat_step is 0; allowed: an integer >= 1"),
        ({"max_sample": True}, "free_benchmark.max_sample is True; allowed: an integer >= 1"),
        ({"fuzz_stage": "backward"}, "free_benchmark.list is .*; allowed: a list of parts of names"),
        ({"handler_type": "fix", "pert_mode": "add_noise"}, "improve_precision or to_cpu with handler_type fix"),
        ({"handler_type": "fix", "fuzz_stage": "backward", "list": ["x"]}, "forward with handler_type fix"),
        ({"handler_type": "fix", "if_preheat": True}, "if_preheat is True; allowed: false with handler_type fix"),
        (
            {"list": ["x"], "scope": ["Torch.a.0.forward", "Torch.b.0.forward"]},
            "scope is .*; not supported together with list",
        ),
        ({"colour": 1}, "free_benchmark has no key 'colour'; known: exclude, fuzz_device"),
    ],
)
def test_a_wrong_key_is_named_with_its_value_and_what_is_allowed(benchmark, section, wrong):
    with pytest.raises(ConfigError, match=wrong):
        benchmark(**section)


@pytest.mark.parametrize("part", ["inputs", "watch", "differentiated", "again"])
def test_a_part_that_breaks_is_reported_and_changes_no_bit_of_the_training(benchmark, monkeypatch, part):
    def broken(*_, **__):
        raise RuntimeError("this part is broken")

    plain, found = training(), []
    monkeypatch.setattr(f"msprobe_hooks.extensions.free_benchmark.torch_recorder.TorchBenchmarkRecorder.{part}", broken)
    _, summary = benchmark(lambda: found.extend(training()), fuzz_stage="backward", fuzz_device="npu", list=["."])
    assert all(torch.equal(one, other) for one, other in zip(plain, found, strict=True))
    assert any("this part is broken" in problem for problem in summary.errors)
