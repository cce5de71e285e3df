"""Sums that cancel: results that share no digit, of terms that agree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import Json, forward, tensor_around

Tensors = tuple[torch.Tensor, ...]
Call = Callable[..., torch.Tensor]


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def opposed(*shape: int) -> torch.Tensor:
    """Return numbers of which the second half of each row takes away what the first adds."""
    half = random(*shape[:-1], shape[-1] // 2, seed=5)
    return torch.cat([half, -half.flip(-1)], -1)


A, B = random(2, 8, 8), random(2, 8, 8, seed=1)
CANCELLING: dict[str, tuple[Call, Tensors]] = {
    "add": (torch.add, (A, -A)),
    "sub": (torch.sub, (A, A)),
    "operator": (lambda a, b: a - b, (A, A)),
    "sum": (lambda a: a.sum(-1), (opposed(4, 64),)),
    "mean": (lambda a: torch.mean(a, -1), (opposed(4, 64),)),
    "matmul": (torch.matmul, (opposed(4, 64), torch.ones(64, 3))),
    "linear": (F.linear, (opposed(4, 64), torch.ones(3, 64))),
    "baddbmm": (torch.baddbmm, (-(A @ B), A, B)),
    "einsum": (lambda a, b: torch.einsum("ik,kj->ij", a, b), (opposed(4, 64), torch.ones(64, 3))),
}


def recorded(folder: Path, call: Call, given: Tensors, task: str) -> Path:
    with record(folder, level="L1", task=task):
        call(*given) * 2.0
    return next(folder.rglob("dump.json"))


def rounded(given: Tensors) -> Tensors:
    """Return tensors that another device might have computed: each number one or two roundings off."""
    signs = torch.tensor([1.0, -1.0, 2.0])
    return tuple(x * (1 + signs[torch.arange(x.numel()).reshape(x.shape) % 3] * 2.0**-23) for x in given)


def compared(tmp_path: Path, call: Call, target: Tensors, golden: Tensors, task: str = "statistics") -> list[str]:
    sides = [recorded(tmp_path / name, call, given, task) for name, given in (("a", target), ("b", golden))]
    pair = DumpPair(0, *map(read_dump, sides), policy=load_policy("default"))
    return [pair.compare(name).outcome for name in pair.orders]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("name", CANCELLING)
def test_roundings_of_terms_that_cancel_are_no_error_nor_what_follows(tmp_path: Path, name: str, task: str) -> None:
    call, given = CANCELLING[name]
    assert {*compared(tmp_path, call, rounded(given), given, task)} == {"pass"}


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("name", CANCELLING)
def test_a_sum_that_is_further_off_than_its_terms_is_wrong(tmp_path: Path, name: str, task: str) -> None:
    call, given = CANCELLING[name]
    off = (given[0] * (1 + 0.01 * torch.linspace(0, 1, given[0].shape[-1])), *given[1:])
    assert "fail" in compared(tmp_path, call, off, given, task)


def added(high: float, *, off: float = 0.0, api: str = "Torch.add") -> Json:
    """Return a call that adds what nearly cancels, and one that is given its result."""
    one, other = (tensor_around(4, Max=at, Min=-1.0, Mean=0.0, Norm=2.0) for at in (1.0 + off, 1.0))
    result = tensor_around(4, Max=high, Min=-high, Mean=0.0, Norm=2 * high)
    return {
        f"{api}.0.forward": forward(one, other, output=[result]),
        "Torch.exp.0.forward": forward(result, output=[tensor_around(4, Max=1 + high)]),
    }


def outcomes(tmp_path: Path, target: Json, golden: Json) -> list[tuple[str, str]]:
    pair = Runs(tmp_path).pair(target, golden)
    calls = [pair.compare(name) for name in pair.orders]
    return [(call.outcome, call.cause) for call in calls]


def test_terms_that_are_equal_explain_no_more_than_roundings(tmp_path: Path) -> None:
    assert outcomes(tmp_path, added(3e-8), added(1e-8))[0] == ("pass", "cancels")
    assert outcomes(tmp_path, added(3e-5), added(1e-5))[0] == ("fail", "culprit")


def test_terms_that_differ_explain_what_their_difference_makes(tmp_path: Path) -> None:
    assert outcomes(tmp_path, added(3e-5, off=1e-5), added(1e-5))[0] == ("pass", "cancels")


def test_a_call_of_no_sum_is_judged_by_its_own_scale(tmp_path: Path) -> None:
    target, golden = (added(high, api="Torch.maximum") for high in (3e-8, 1e-8))
    assert outcomes(tmp_path, target, golden)[0] == ("fail", "culprit")


def test_a_wrong_call_after_a_sum_that_cancels_is_the_culprit(tmp_path: Path) -> None:
    target, golden = added(3e-8), added(1e-8)
    wrong = tensor_around(4, Max=500.0)
    target["Torch.exp.0.forward"]["output"] = [wrong]
    assert outcomes(tmp_path, target, golden) == [("pass", "cancels"), ("fail", "culprit")]


def test_the_summary_counts_what_was_judged_by_its_terms(compare: Callable[..., pytest.RunResult], runs: Runs) -> None:
    target, golden = runs.both(added(3e-8), added(1e-8))
    result = compare(target, golden)
    result.stdout.fnmatch_lines(["2 of them hold sums that cancel, *: judged by the scale of the terms"])


@pytest.mark.parametrize("kernel", ["Gradients_Default_network-Net_AddN-op1", "Default_network-Net_Sub-op0"])
def test_kernels_of_a_graph_are_judged_by_their_terms(tmp_path: Path, kernel: str) -> None:
    for name, direction in ((f"Kernel.{kernel}", "backward"), (f"Kernel.{kernel}", "forward")):
        target, golden = ({f"{name}.0.{direction}": added(high)["Torch.add.0.forward"]} for high in (3e-8, 1e-8))
        assert outcomes(tmp_path / direction, target, golden) == [("pass", "cancels")]
