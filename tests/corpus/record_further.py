"""Records ``tests/data/verdict_quality/further`` and ``further_values``: calls that other dumps do not hold.

Run it as ``python -m tests.corpus.record_further FOLDER``.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from msprobe_hooks import record


def main() -> None:
    """Record one pass."""
    torch.manual_seed(0)
    folder = Path(sys.argv[1])
    with record(folder / "further", level="L1", task="statistics"):
        functions()
        layers()
        attention()
        reductions()
        optimizers()
        draws()
        layouts()
    with record(folder / "further_values", level="L1", task="tensor"):
        values()


def functions() -> None:
    """Elementwise functions near the places where short formulas fail."""
    x = _leaf(32, 48)
    small = (torch.randn(32, 48) * 1e-4).requires_grad_()
    _backward(torch.expm1(small))
    _backward(torch.log1p(small))
    _backward(torch.sigmoid(x * 6))
    _backward(torch.erf(x))
    _backward(torch.erfinv(torch.rand(32, 48).mul(1.998).sub(0.999).requires_grad_()))
    _backward(torch.atan2(x, _leaf(32, 48)))
    _backward(F.prelu(_leaf(4, 6, 5, 5), torch.rand(6).requires_grad_()))
    _backward(torch.mul(_complex(12, 20), _complex(12, 20)))
    _backward(torch.masked_fill(x * 1, torch.rand(32, 48) > 0.7, -2.0))
    _backward(F.smooth_l1_loss(x, torch.randn(32, 48), beta=0.25))
    x.detach().to(torch.float8_e4m3fn)
    torch._foreach_mul([torch.randn(40), torch.randn(7, 9)], [0.5, 1.7])


def layers() -> None:
    """Layers whose windows, groups and orders are easily mixed up."""
    x = _leaf(2, 16, 11, 13)
    _backward(F.pixel_shuffle(x, 2))
    _backward(torch.roll(x, (2, -3), (2, 3)))
    _backward(F.adaptive_avg_pool2d(x, (4, 5)))
    _backward(F.interpolate(x, scale_factor=1.7, mode="nearest"))
    _backward(F.grid_sample(x, (torch.rand(2, 7, 8, 2) * 2 - 1).requires_grad_(), align_corners=False))
    _backward(F.fold(_leaf(2, 36, 25), (7, 7), 3))
    _backward(F.group_norm(x, 4, torch.rand(16).requires_grad_(), _leaf(16)))
    _backward(F.conv2d(x, _leaf(12, 4, 3, 3), _leaf(12), groups=4))
    _backward(F.conv2d(x, _leaf(6, 16, 4, 4), _leaf(6), padding="same"))
    _backward(F.max_pool2d(x, 3, 1))
    _backward(F.dropout2d(_leaf(32, 48, 4, 4), 0.3))
    for dtype in (torch.float32, torch.bfloat16):
        rows = _leaf(96, 256).to(dtype)
        _backward(F.rms_norm(rows * 1e-2, (256,), torch.rand(256).to(dtype).requires_grad_(), 1e-5))
        _backward(F.linear(rows + 1, _leaf(24, 256).to(dtype), _leaf(24).to(dtype)))
        _backward(F.layer_norm(rows, (256,), torch.rand(256).to(dtype).requires_grad_(), _leaf(256).to(dtype)))
        _backward(torch.matmul(rows[:, :100], _leaf(100, 20).to(dtype)))
    labels = torch.randint(0, 30, (64,)).index_fill(0, torch.arange(0, 64, 5), -100)
    _backward(F.cross_entropy(_leaf(64, 30), labels))
    _backward(F.cross_entropy(_leaf(64, 30), torch.randint(0, 30, (64,)), label_smoothing=0.1))
    _backward(torch.addmm(_leaf(24, 16), _leaf(24, 40), _leaf(40, 16), alpha=0.3))
    gru = torch.nn.GRU(10, 12, batch_first=True)
    _backward(gru(_leaf(3, 6, 10))[0])


def attention() -> None:
    """Attention with other numbers of keys than queries, and with blocks that are not whole."""
    for queries, keys, is_causal in ((12, 20, True), (24, 45, False)):
        query, key, value = (_leaf(2, 4, positions, 16) for positions in (queries, keys, keys))
        _backward(F.scaled_dot_product_attention(query, key, value, is_causal=is_causal))


def reductions() -> None:
    """Sums and variances over several axes, and long ones in 16 bits."""
    x = _leaf(6, 20, 30)
    _backward(torch.var(x, (1, 2)))
    _backward(torch.var(x, 2))
    _backward(torch.prod(torch.rand(20, 6).add(0.5).requires_grad_(), 1))
    _backward(torch.scatter_reduce(_leaf(8, 10), 1, torch.randint(0, 10, (8, 14)), _leaf(8, 14), "sum"))
    torch.cumsum(torch.randn(8, 900).bfloat16() + 1, 1)
    _backward(F.softmax(x[..., :27] * 3, -1))
    _backward(F.log_softmax(x[..., :27], -1))


def optimizers() -> None:
    """A fused AdamW step early in a training, with decay."""
    weights = [torch.randn(150).requires_grad_(), torch.randn(20, 30).requires_grad_()]
    optimizer = torch.optim.AdamW(weights, lr=1e-2, weight_decay=0.2, fused=True)
    for _ in range(2):
        for weight in weights:
            weight.grad = torch.randn_like(weight)
        optimizer.step()


def draws() -> None:
    """Numbers drawn at random, enough of them to show a pattern."""
    torch.empty(60, 50).normal_()
    torch.empty(60, 50).uniform_(-1, 1)
    torch.bernoulli(torch.full((40, 50), 0.3))
    torch.multinomial(torch.rand(300, 12), 6, replacement=True)
    F.dropout(torch.ones(40, 50), 0.4)


def layouts() -> None:
    """Inputs that are not contiguous, or begin in the middle of a storage."""
    x = _leaf(40, 24)
    for function in (torch.tanh, torch.sigmoid, F.gelu, torch.exp):
        _backward(function(x.t()))
    _backward(F.softmax(x.t(), -1))
    _backward(torch.sum(x.t(), 1))
    _backward(F.layer_norm(x.t(), (40,)))
    _backward(F.relu(x[7:]))
    _backward(x[5:].clone())
    x.t().contiguous()


def values() -> None:
    """Values that a draw does not hit: ties, halves, zeros, NaN and sums beyond 32 bits."""
    torch.sort(torch.randint(0, 4, (6, 30)), dim=-1, stable=True)
    torch.round(torch.arange(-8, 8) / 2)
    torch.amax(torch.tensor([[1.0, math.nan, 3.0], [2.0, 5.0, -1.0]]), 1)
    torch.sum(torch.full((64,), 2**28))
    zeros = torch.tensor([[0.0, 2.0, 3.0], [1.5, 0.0, 0.0], [0.5, 2.0, 1.0]])
    _backward(torch.prod(zeros.clone().requires_grad_(), 1))
    _backward(torch.pow(zeros.clone().requires_grad_(), 2.5))


def _complex(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex64).requires_grad_()


def _leaf(*shape: int) -> torch.Tensor:
    return torch.randn(shape).requires_grad_()


def _backward(output: torch.Tensor) -> None:
    output.backward(torch.randn_like(output), retain_graph=True)


if __name__ == "__main__":
    main()
