"""Calls that cancel inside: a gradient less its projection, and what an optimizer makes of rounding alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from pytest_msprobe.modes.compare.rows import ComparedCall

Loss = Callable[[torch.Tensor], torch.Tensor]

VECTOR = torch.linspace(1, 2, 16)
#: Losses that a call's argument does not move, but for rounding.
UNMOVED: dict[str, Loss] = {
    "layer_norm": lambda x: F.layer_norm(x, (16,), VECTOR, eps=1e-9).div(VECTOR).square().mean(),
    "rms_norm": lambda x: F.rms_norm(x, (16,)).square().mean(),
    "group_norm": lambda x: F.group_norm(x, 4).square().mean(),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True).square().mean(),
    "instance_norm": lambda x: F.instance_norm(x.reshape(8, 4, 16)).square().mean(),
    "normalize": lambda x: F.normalize(x).square().mean(),
    "softmax": lambda x: torch.softmax(x, -1).sum(-1).sin().mean(),
    "log_softmax": lambda x: F.kl_div(F.log_softmax(x, -1), torch.softmax(x.detach(), -1), reduction="batchmean"),
    "cosine_similarity": lambda x: (1 - F.cosine_similarity(x, x.detach() * 2)).mean(),
    "cosine_embedding_loss": lambda x: F.cosine_embedding_loss(x, x.detach() * 2, torch.ones(32)),
    "cross_entropy": lambda x: F.cross_entropy(x + 30 * torch.eye(16).repeat(2, 1), torch.arange(16).repeat(2)),
    "mse_loss": lambda x: F.mse_loss(x, x.detach() * (1 + 1e-6)),
}


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


def rounded(x: torch.Tensor) -> torch.Tensor:
    """Return numbers that another device might have computed: each one or two roundings off."""
    signs = torch.tensor([1.0, -1.0, 2.0])
    return x * (1 + signs[torch.arange(x.numel()).reshape(x.shape) % 3] * 2.0**-23)


def run(folder: Path, loss: Loss, x: torch.Tensor, task: str = "statistics") -> Path:
    with record(folder, level="L1", task=task):
        loss(x.clone().requires_grad_() * 1.0).backward()
    return next(folder.rglob("dump.json"))


def calls(target: Path, golden: Path) -> list[ComparedCall]:
    pair = DumpPair(0, read_dump(target), read_dump(golden), policy=load_policy("default"))
    return [pair.compare(name) for name in pair.orders]


def wrong(target: Path, golden: Path) -> list[tuple[str, str]]:
    return [(call.record, call.cause) for call in calls(target, golden) if call.outcome in ("warn", "fail")]


def with_gradient(dump: Path, name: str, change: Callable[[float], float]) -> None:
    """Change the first gradient that a backward call made in a dump."""
    content = json.loads(dump.read_text())
    key = next(key for key in content["data"] if f"{name}." in key and key.endswith(".backward"))
    gradient = content["data"][key]["output"][0]
    gradient |= {number: change(gradient[number]) for number in ("Max", "Min", "Mean", "Norm")}
    dump.write_text(json.dumps(content))


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("name", UNMOVED)
def test_a_gradient_that_is_rounding_alone_is_no_error_nor_what_follows(tmp_path: Path, name: str, task: str) -> None:
    x = random(32, 16)
    target, golden = (run(tmp_path / side, UNMOVED[name], of, task) for side, of in (("a", rounded(x)), ("b", x)))
    assert wrong(target, golden) == []


@pytest.mark.parametrize("name", UNMOVED)
def test_a_projection_that_is_lost_is_the_culprit(tmp_path: Path, name: str) -> None:
    target, golden = (run(tmp_path / side, UNMOVED[name], random(32, 16)) for side in "ab")
    with_gradient(target, name, lambda number: number + 1e-2)
    ((culprit, cause),) = wrong(target, golden)
    assert f".{name}." in culprit
    assert cause == "culprit"


@pytest.mark.parametrize("name", [name for name in UNMOVED if "loss" not in name and name != "cross_entropy"])
def test_a_gradient_that_does_not_cancel_is_judged_by_its_own_scale(tmp_path: Path, name: str) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        calls: dict[str, Loss] = {
            "layer_norm": lambda x: F.layer_norm(x, (16,), VECTOR),
            "rms_norm": lambda x: F.rms_norm(x, (16,)),
            "group_norm": lambda x: F.group_norm(x, 4),
            "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
            "instance_norm": lambda x: F.instance_norm(x.reshape(8, 4, 16)),
            "normalize": F.normalize,
            "softmax": lambda x: torch.softmax(x, -1),
            "log_softmax": lambda x: F.log_softmax(x, -1),
            "cosine_similarity": lambda x: F.cosine_similarity(x, random(32, 16).flip(0)),
        }
        result = calls[name](x)
        return (result * torch.linspace(-1, 3, result.numel()).reshape(result.shape).cos()).sum()

    target, golden = (run(tmp_path / side, loss, random(32, 16)) for side in "ab")
    with_gradient(target, name, lambda number: number * 1.01)
    ((culprit, cause),) = wrong(target, golden)
    assert f".{name}." in culprit
    assert cause == "culprit"


def trained(folder: Path, x: torch.Tensor, *, rate: float = 0.01, **options: object) -> Path:
    """Record a step of AdamW for a model whose first bias has no effect, as its batch is normalised."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, **options)  # type: ignore[arg-type]
    with record(folder, level="mix", model=model, task="statistics"):
        model(x).sin().sum().backward()
        optimizer.step()
    return next(folder.rglob("dump.json"))


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_an_optimizer_may_step_either_way_where_a_gradient_is_rounding(
    tmp_path: Path, options: dict[str, bool]
) -> None:
    x = random(32, 16)
    target, golden = trained(tmp_path / "a", rounded(x), **options), trained(tmp_path / "b", x, **options)
    assert wrong(target, golden) == []
    assert any(call.cause == "cancels" and "ada" in call.record + "adam" for call in calls(target, golden))


@pytest.mark.parametrize(
    ("fault", "culprit"),
    [({"betas": (0.8, 0.999)}, "lerp_"), ({"betas": (0.9, 0.99)}, "mul_"), ({"rate": 0.011}, "addcdiv_")],
)
def test_a_wrong_setting_of_the_optimizer_is_found(tmp_path: Path, fault: dict[str, object], culprit: str) -> None:
    x = random(32, 16)
    target = trained(tmp_path / "a", rounded(x), foreach=False, **fault)  # type: ignore[arg-type]
    name, cause = wrong(target, trained(tmp_path / "b", x, foreach=False))[0]
    assert (name.split(".")[1], cause) == (culprit, "culprit")


@pytest.mark.parametrize("options", [{"foreach": False}, {"foreach": True}, {"fused": True}], ids=str)
def test_a_step_that_is_too_large_for_rounding_is_found(tmp_path: Path, options: dict[str, bool]) -> None:
    x = random(32, 16)
    target, golden = trained(tmp_path / "a", rounded(x), **options), trained(tmp_path / "b", x, **options)
    content = json.loads(target.read_text())
    steps = [body["output"] for key, body in content["data"].items() if "addcdiv" in key or "fused" in key]
    # The bias is the second parameter.
    parameters = [step[0] for step in steps] if len(steps) > 1 else steps[0][0] if "fused" in options else steps[0]
    parameters[1] |= {number: parameters[1][number] + 0.5 for number in ("Max", "Min", "Mean")}
    target.write_text(json.dumps(content))
    ((name, cause),) = wrong(target, golden)
    assert "addcdiv" in name or "fused" in name
    assert cause == "culprit"


MODULES: dict[str, Callable[[], nn.Module]] = {
    "LayerNorm": lambda: nn.LayerNorm(16),
    "GroupNorm": lambda: nn.GroupNorm(4, 16),
    "BatchNorm1d": lambda: nn.BatchNorm1d(16),
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_cancels_is_judged_by_its_terms(tmp_path: Path, name: str) -> None:
    def recorded(folder: Path, x: torch.Tensor) -> Path:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 16), MODULES[name]())
        with record(folder, level="L0", model=model, task="statistics"):
            model(x).square().mean().backward()
        return next(folder.rglob("dump.json"))

    x = random(32, 16)
    target, golden = recorded(tmp_path / "a", rounded(x)), recorded(tmp_path / "b", x)
    assert wrong(target, golden) == []


def test_a_mean_that_is_subtracted_leaves_rounding(tmp_path: Path) -> None:
    x = 1000 + random(32, 1) * 1e-4 + torch.zeros(32, 16)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x - x.mean(-1, keepdim=True)).sum()

    target, golden = (run(tmp_path / side, loss, of) for side, of in (("a", rounded(x)), ("b", x)))
    assert wrong(target, golden) == []


def test_a_product_that_an_optimizer_adds_is_no_larger_than_the_product(tmp_path: Path) -> None:
    gradient = random(32) * 1e-4

    def averaged(folder: Path, share: float) -> Path:
        with record(folder, level="L1", task="statistics"):
            torch.zeros(32).addcmul_(gradient, gradient, value=0.001)
        dump = next(folder.rglob("dump.json"))
        content = json.loads(dump.read_text())
        output = next(body["output"][0] for key, body in content["data"].items() if "addcmul_" in key)
        output |= {number: output[number] * share for number in ("Max", "Min", "Mean", "Norm")}
        dump.write_text(json.dumps(content))
        return dump

    ((name, _),) = wrong(averaged(tmp_path / "a", 2.0), averaged(tmp_path / "b", 1.0))
    assert "addcmul_" in name


def test_a_fault_after_clipping_is_found_though_one_gradient_is_rounding(tmp_path: Path) -> None:
    def clipped(folder: Path, x: torch.Tensor) -> Path:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        with record(folder, level="mix", model=model, task="statistics"):
            model(x).sin().sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.01, foreach=False)
            optimizer.step()
        return next(folder.rglob("dump.json"))

    x = random(32, 16)
    # As far off that the norm of all gradients differs.
    target, golden = clipped(tmp_path / "a", x * (1 + 2e-6)), clipped(tmp_path / "b", x)
    assert wrong(target, golden) == []
    content = json.loads(target.read_text())
    output = content["data"]["Tensor.lerp_.0.forward"]["output"][0]
    output |= {number: output[number] * 1.4 for number in ("Max", "Min", "Mean", "Norm")}
    target.write_text(json.dumps(content))
    assert wrong(target, golden)[0] == ("Tensor.lerp_.0.forward", "culprit")


@pytest.mark.parametrize("share", [0.0, 0.5])
@pytest.mark.parametrize("reduction", ["sum", "batchmean"])
def test_a_wrong_loss_over_many_classes_is_found(tmp_path: Path, reduction: str, share: float) -> None:
    # In bfloat16 a bound that counts every logit as a summand is larger than the loss.
    logits = (random(16, 4096) * 3).bfloat16()

    def loss(folder: Path, share: float) -> Path:
        with record(folder, level="L1", task="statistics"):
            if reduction == "sum":
                F.cross_entropy(logits, torch.arange(16), reduction="sum")
            else:
                wanted = torch.softmax(logits + logits.flip(0, 1), -1)
                F.kl_div(torch.log_softmax(logits, -1), wanted, reduction="batchmean")
        dump = next(folder.rglob("dump.json"))
        content = json.loads(dump.read_text())
        name = "cross_entropy" if reduction == "sum" else "kl_div"
        output = content["data"][f"Functional.{name}.0.forward"]["output"][0]
        output |= {number: output[number] * share for number in ("Max", "Min", "Mean", "Norm")}
        dump.write_text(json.dumps(content))
        return dump

    assert wrong(loss(tmp_path / "a", share), loss(tmp_path / "b", 1.0))


def test_a_masked_softmax_whose_gradient_loses_rows_is_found(tmp_path: Path) -> None:
    arriving = random(2, 256, 256).bfloat16()
    scores = random(2, 256, 256).masked_fill(torch.ones(256, 256).triu(1).bool(), -torch.inf).bfloat16()

    def gradient(folder: Path, rows: int) -> Path:
        x = scores.clone().requires_grad_()
        with record(folder, level="L1", task="statistics"):
            torch.softmax(x, -1).backward(arriving)
        dump = next(folder.rglob("dump.json"))
        assert x.grad is not None
        kept = x.grad.float()
        kept[:, rows:] = 0
        content = json.loads(dump.read_text())
        content["data"]["Torch.softmax.0.backward"]["output"][0] |= {
            "Max": kept.max().item(),
            "Min": kept.min().item(),
            "Mean": kept.mean().item(),
            "Norm": kept.norm().item(),
        }
        dump.write_text(json.dumps(content))
        return dump

    assert wrong(gradient(tmp_path / "a", 64), gradient(tmp_path / "b", 256))


def test_a_normalisation_by_keyword_is_judged(tmp_path: Path) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (F.layer_norm(input=x, normalized_shape=(16,)) * VECTOR).sum()

    target, golden = (run(tmp_path / side, loss, random(32, 16)) for side in "ab")
    with_gradient(target, "layer_norm", lambda number: number * 1.5)
    assert wrong(target, golden)[0][1] == "culprit"
