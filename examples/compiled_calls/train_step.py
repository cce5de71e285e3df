"""Record the kernels of a compiled training step, one of which is wrong on purpose.

The folders ``compiled`` and ``golden`` next to this file are what it wrote.
"""

from __future__ import annotations

import torch
from torch import nn
from torch._inductor.async_compile import AsyncCompile
from torch.nn import functional as F

from msprobe_hooks import record

compile_kernel = AsyncCompile.cpp_pybinding


def compile_wrong_kernel(self, types, source):
    """Compile a kernel's C++; the kernel that computes erf, of a GELU, gets a wrong factor."""
    return compile_kernel(self, types, source.replace(".erf()", ".erf() * at::vec::Vectorized<float>(1.01f)"))


class Model(nn.Module):
    """Two linear layers with a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.up(self.norm(x))
        h = F.gelu(h)
        return x + self.down(h)


if __name__ == "__main__":
    AsyncCompile.cpp_pybinding = compile_wrong_kernel
    torch.manual_seed(0)
    model = torch.compile(Model())
    with record("compiled", level="compiled", golden_path="golden") as session:
        model(torch.randn(8, 16)).square().mean().backward()
    print(session.summary)
