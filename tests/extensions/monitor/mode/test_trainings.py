"""Trainings that really run: honest ones raise no alarm, and what is planted is found where it begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import msprobe_hooks
from msprobe_hooks.extensions.monitor.series.reader import open_run, rank_folders
from pytest_msprobe.extensions.monitor.judging import judge_run, load_policy
from pytest_msprobe.extensions.monitor.series_names import Alarmed, alarmed_of

STEPS, PLANTED = 32, 20
WATCHED = ["activations", "gradients", "moments", "parameters"]

Fault = Callable[[nn.Module, torch.optim.Optimizer], None]


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def normalized() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


class Attending(nn.Module):
    """A causal transformer layer, which is given a mask of -inf."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(3)
        return self.head(self.layer(x[:, None].expand(-1, 3, -1), src_mask=mask)[:, -1])


def train(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, fault: Fault | None = None) -> Path:
    """Train a classifier of random vectors and return the run's folder."""
    torch.manual_seed(1)
    truth = torch.randn(8, 4)
    with msprobe_hooks.watch(model, optimizer, folder, what=WATCHED, statistics=["norm", "max", "nans"]):
        for step in range(STEPS):
            if step == PLANTED and fault is not None:
                with torch.no_grad():
                    fault(model, optimizer)
            inputs = torch.randn(32, 8)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), (inputs @ truth).argmax(1)).backward()
            optimizer.step()
    (run,) = rank_folders(folder)
    return run


@pytest.mark.parametrize(
    ("make", "optimizer"),
    [(perceptron, torch.optim.AdamW), (normalized, torch.optim.SGD), (Attending, torch.optim.AdamW)],
)
def test_an_honest_training_raises_no_alarm(tmp_path, make, optimizer):
    torch.manual_seed(0)
    model = make()
    run = train(tmp_path, model, optimizer(model.parameters(), lr=0.01))
    failed, warned = judge_run(run, load_policy("default", dtype="float16"))
    assert [result.reason for result in [*failed, *warned]] == []


def alarms(folder: Path, fault: Fault, dtype: str | None = None) -> list[Alarmed]:
    """Plant a fault in a perceptron and return what fails, the first alarm first."""
    torch.manual_seed(0)
    model = perceptron()
    run = train(folder, model, torch.optim.Adam(model.parameters(), lr=0.01), fault)
    failed, _ = judge_run(run, load_policy("default", dtype))
    return [alarmed for result in failed if (alarmed := alarmed_of(result.extras))]


def reported(alarmed: Alarmed) -> tuple[str, int]:
    return alarmed.alarms[0].rule, alarmed.alarms[0].step


def test_a_learning_rate_that_is_too_large_explodes(tmp_path):
    def fault(model, optimizer):
        optimizer.param_groups[0]["lr"] *= 10_000

    first = alarms(tmp_path, fault)[0]
    assert reported(first) == ("exploding", PLANTED)
    assert first.task == "param_updated"


def test_nan_in_a_weight_is_reported_for_that_weight(tmp_path):
    def fault(model, optimizer):
        model[2].weight[0, 0] = torch.nan

    first = alarms(tmp_path, fault)[0]
    assert reported(first) == ("nan", PLANTED)
    assert first.item == "param_origin/2.weight/norm"


def test_a_layer_that_dies_vanishes(tmp_path):
    def fault(model, optimizer):
        model[2].weight.zero_()
        model[0].bias.fill_(-60.0)

    dead = {alarmed.item: reported(alarmed) for alarmed in alarms(tmp_path, fault)}
    assert dead["grad_reduced/0.weight/norm"] == ("vanishing", PLANTED + 9)


def test_a_parameter_that_the_optimizer_forgets_is_stuck(tmp_path):
    def fault(model, optimizer):
        group = optimizer.param_groups[0]
        group["params"] = [parameter for parameter in group["params"] if parameter is not model[2].weight]

    (after, before) = alarms(tmp_path, fault)
    assert (after.item, reported(after)) == ("param_updated/2.weight/norm", ("stuck", PLANTED + 9))
    assert (before.item, reported(before)) == ("param_origin/2.weight/norm", ("stuck", PLANTED + 10))


def test_a_parameter_that_the_optimizer_never_had_is_stuck_from_the_start(tmp_path):
    torch.manual_seed(0)
    model = perceptron()
    optimizer = torch.optim.Adam([one for name, one in model.named_parameters() if name != "2.weight"], lr=0.01)
    failed, _ = judge_run(train(tmp_path, model, optimizer), load_policy("default"))
    found = [alarmed for result in failed if (alarmed := alarmed_of(result.extras))]
    assert {(each.item, reported(each)) for each in found} == {
        ("param_origin/2.weight/norm", ("stuck", 10)),
        ("param_updated/2.weight/norm", ("stuck", 10)),
    }


def test_two_watched_optimizers_of_one_model_raise_no_alarm(tmp_path):
    torch.manual_seed(0)
    model = perceptron()
    model[0].requires_grad_(False)
    often, seldom = (torch.optim.Adam(model[place].parameters(), lr=0.01) for place in (4, 2))
    watched = {"what": ["gradients", "parameters"], "statistics": ["norm"]}
    with (
        msprobe_hooks.watch(model, often, tmp_path / "often", **watched),
        msprobe_hooks.watch(model, seldom, tmp_path / "seldom", targets={"2": {}, "4": {}}, **watched),
    ):
        for step in range(48):
            nn.functional.cross_entropy(model(torch.randn(32, 8)), torch.arange(32) % 4).backward()
            often.step()
            if step % 12 == 11:
                seldom.step()
            model.zero_grad()
    for name, parameters in (("often", {"4.weight", "4.bias"}), ("seldom", {"2.weight", "2.bias"})):
        (run,) = rank_folders(tmp_path / name)
        failed, warned = judge_run(run, load_policy("default"))
        assert [result.reason for result in [*failed, *warned]] == []
        assert {key.name for key in open_run(run).keys if key.task == "param_origin"} == parameters


def test_activations_out_of_the_training_dtypes_range_overflow(tmp_path):
    def fault(model, optimizer):
        model[4].bias.fill_(70_000.0)

    found = {alarmed.item: reported(alarmed) for alarmed in alarms(tmp_path, fault, dtype="float16")}
    assert found["actv/4.output/max"] == ("overflow", PLANTED)
