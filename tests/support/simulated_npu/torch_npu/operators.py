"""Some operators of torch_npu, with its signatures, computed on the card step by step in the dtype of their inputs."""

from __future__ import annotations

import torch
from torch import Tensor

_LIBRARY = torch.library.Library("npu", "DEF")


def npu_fast_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def npu_swiglu(x: Tensor, dim: int = -1) -> Tensor:
    gate, value = x.chunk(2, dim)
    return gate * torch.sigmoid(gate) * value


def npu_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-06) -> tuple[Tensor, Tensor]:
    wide = x.float()
    rstd = torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return (wide * rstd).to(x.dtype) * gamma, rstd.detach()


def npu_rotary_mul(x: Tensor, r1: Tensor, r2: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return r1 * x + r2 * torch.cat((-second, first), -1)


_SCHEMAS = {
    npu_fast_gelu: "(Tensor self) -> Tensor",
    npu_swiglu: "(Tensor self, int dim=-1) -> Tensor",
    npu_rms_norm: "(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    npu_rotary_mul: "(Tensor self, Tensor r1, Tensor r2) -> Tensor",
}
for _operator, _schema in _SCHEMAS.items():
    _LIBRARY.define(f"{_operator.__name__}{_schema}")
    _LIBRARY.impl(_operator.__name__, _operator, "CompositeImplicitAutograd")

NAMES = tuple(operator.__name__ for operator in _SCHEMAS)
