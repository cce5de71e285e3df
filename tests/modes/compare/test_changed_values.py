"""Values that the target alone changed between the call that returned them and the one that was given them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from msprobe_hooks import record

Compare = Callable[..., pytest.RunResult]
CHANGED = "changed after"


def recorded(folder: Path, task: str, *, changes: bool) -> None:
    """Record a product of a root, to one element of which something else may have added."""
    torch.manual_seed(0)
    x, weight = torch.rand(64, 512) + 1, torch.rand(512, 16)
    with record(folder, task=task, level="L1", quiet=True):
        y = torch.sqrt(x)
        if changes:
            # Below the modes that see calls; the tensor's version says that it changed.
            with torch._C.DisableTorchFunctionSubclass():
                y[2, 3] += 0.5
        (y @ weight).sum()


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_value_that_changed_between_two_calls_is_named_with_both(compare: Compare, tmp_path: Path, task: str) -> None:
    for run in ("target", "golden"):
        recorded(tmp_path / run, task, changes=run == "target")
    result = compare(tmp_path / "target", tmp_path / "golden")
    result.stdout.fnmatch_lines(
        ["*input.0 of Tensor.__matmul__.0.forward changed after Torch.sqrt.0.forward returned it, in the target alone*"]
    )


def test_a_change_is_named_before_a_later_culprit(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    made, moved = tensor(4, 4, Max=1.0), tensor(4, 4, Max=1.00005)
    sides = [
        {
            "Torch.exp.0.forward": call(tensor(4, 4, Max=3.0), out=made),
            "Torch.tanh.0.forward": call(read, out=read),
            "Torch.sum.0.forward": call(read, out=tensor(4, 4, Max=top)),
        }
        for read, top in ((moved, 2.0), (made, 1.0))
    ]
    result = compare(*runs.both(*sides))
    result.stdout.fnmatch_lines(
        [
            "first forward culprit: Torch.sum.0.forward *",
            "    input.0 of Torch.tanh.0.forward changed after Torch.exp.0.forward returned it, in the target alone",
        ]
    )


@pytest.mark.parametrize(
    "change",
    [{"Norm": 2.0 * (1 + 2.0**-23)}, {"Max": 1.0}],
    ids=["added up in another order", "not at all"],
)
def test_values_that_another_device_rounds_otherwise_have_not_changed(
    compare: Compare, runs: Any, call: Any, tensor: Any, change: dict[str, float]
) -> None:
    made, rounded = tensor(4, 4), tensor(4, 4, Max=1.00001)
    golden = {"Torch.exp.0.forward": call(tensor(4, 4), out=made), "Torch.mm.0.forward": call(made, out=made)}
    read = rounded | change if "Norm" in change else rounded
    target = {
        "Torch.exp.0.forward": call(tensor(4, 4), out=rounded),
        "Torch.mm.0.forward": call(read, out=tensor(4, 4, Max=2.0)),
    }
    result = compare(*runs.both(target, golden))
    result.stdout.fnmatch_lines(["first forward culprit: Torch.mm.0.forward *"])
    assert CHANGED not in result.stdout.str()


def test_a_constant_may_come_from_any_call(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    zeros, other = tensor(4, 4, Max=0.0, Min=0.0, Mean=0.0, Norm=0.0), tensor(4, 4, Max=2.0)
    sides = [
        {"Torch.exp.0.forward": call(tensor(4, 4), out=zeros), "Torch.mm.0.forward": call(read, out=read)}
        for read in (other, zeros)
    ]
    assert CHANGED not in compare(*runs.both(*sides)).stdout.str()


def test_a_value_that_was_converted_is_called_so(compare: Compare, runs: Any, call: Any, tensor: Any) -> None:
    made, rounded = tensor(4, 4), tensor(4, 4, dtype="torch.bfloat16", Max=1.0078125)
    sides = [
        {"Torch.exp.0.forward": call(tensor(4, 4), out=made), "Torch.mm.0.forward": call(read, out=out)}
        for read, out in ((rounded, tensor(4, 4, Max=2.0)), (made, made))
    ]
    said = (
        "was converted from torch.float32 to torch.bfloat16 after Torch.exp.0.forward returned it, in the target alone"
    )
    compare(*runs.both(*sides)).stdout.fnmatch_lines([f"*input.0 of Torch.mm.0.forward {said}*"])
