"""A tensor parallel training of two real processes next to that of one: what all_reduce gave stands for the parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.gloo import run_ranks

_PROGRAM = """
import sys
import torch
import torch.distributed as dist
from torch.nn import functional
from msprobe_hooks import record

rank, folder, count = int(sys.argv[1]), sys.argv[2], {count}
if count > 1:
    dist.init_process_group("gloo", init_method=f"file://{{folder}}/store", rank=rank, world_size=count)

class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient

class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        up, down = torch.randn(12, 4, generator=generator), torch.randn(4, 12, generator=generator)
        self.up = torch.nn.Parameter(up.chunk(count, 0)[rank])
        self.down = torch.nn.Parameter(down.chunk(count, 1)[rank])

    def forward(self, x):
        out = functional.linear(functional.gelu(functional.linear(x, self.up)), self.down)
        return Summed.apply(out) if count > 1 else out

model = torch.nn.Sequential(Mlp())
with record(f"{{folder}}/of{{count}}", level="mix", model=model, quiet=True):
    model(torch.arange(12.0).reshape(3, 4) / 7).square().sum().backward()
if count > 1:
    # A rank that leaves while another still reads from it aborts that one.
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.slow
def test_the_result_of_a_reduction_is_compared_in_place_of_its_parts(
    compare: Callable[..., pytest.RunResult], tmp_path: Path
) -> None:
    for count in (1, 2):
        assert run_ranks(_PROGRAM.format(count=count), count, tmp_path) == [(0, "")] * count
    target, golden = tmp_path / "of2" / "step0", tmp_path / "of1" / "step0"
    result = compare(target, golden, "--msprobe-target-layout", "tp=2")
    outcomes = result.parseoutcomes()
    assert "failed" not in outcomes
    assert outcomes["passed"] > 5
    assert "not compared, because ranks hold parts" not in result.stdout.str()
