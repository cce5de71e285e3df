"""Triton kernels of programs, run by Triton's interpreter on a CPU."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.support.frameworks.started import PYTHON, VARIABLES
from tests.support.requirements import require
from tests.support.runs import check

_STEP = """
import torch
import triton
import triton.language as tl
from msprobe_hooks import record

torch._inductor.config.compile_threads = 1
torch.manual_seed(0)


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < size)
    y = tl.load(y_ptr + places, mask=places < size)
    tl.store(out_ptr + places, x * tl.sigmoid(x) * y, mask=places < size)


@torch.library.custom_op("mine::gate", mutates_args=())
def gate(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out


@gate.register_fake
def _(x, y):
    return torch.empty_like(x)


x, y = torch.randn(200), torch.randn(200)
with record("compiled", level="compiled", task="tensor", golden_path="golden"):
    torch.compile(lambda x, y: gate(x, y) * 2)(x, y)
name = "Inductor.graph0_forward.torch_ops_mine_gate_default.0.forward.output.0.pt"
golden = torch.load("golden/step0/rank/dump_tensor_data/" + name)
wide, other = x.double(), y.double()
print("as computed in float64:", torch.equal(golden, (wide / (1 + torch.exp(-wide)) * other).float()))
"""


@pytest.mark.slow
@pytest.mark.nightly
def test_a_triton_kernel_has_golden_values_that_the_interpreter_computed_in_float64(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    require(PYTHON.exists(), ".venv-frameworks, which make nightly builds")
    require(os.environ.get("CXX") or shutil.which("g++"), "a C++ compiler")
    for name, value in {**VARIABLES, "TRITON_INTERPRET": "1"}.items():
        monkeypatch.setenv(name, value)
    recorded = pytester.run(PYTHON, pytester.makepyfile(step=_STEP))
    assert recorded.ret == 0, recorded.stderr.str()
    recorded.stdout.fnmatch_lines(["as computed in float64: True"])
    checked = check(pytester, "--msprobe-compare=compiled", "--msprobe-golden=golden", apart=True)
    assert [case.outcome for case in checked.cases.values()] == ["passed", "passed"]
