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
from tests.corpus.differentiated import backward, leaf


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
    x = leaf(32, 48)
    small = (torch.randn(32, 48) * 1e-4).requires_grad_()
    backward(torch.expm1(small))
    backward(torch.log1p(small))
    backward(torch.sigmoid(x * 6))
    backward(torch.erf(x))
    backward(torch.erfinv(torch.rand(32, 48).mul(1.998).sub(0.999).requires_grad_()))
    backward(torch.atan2(x, leaf(32, 48)))
    backward(F.prelu(leaf(4, 6, 5, 5), torch.rand(6).requires_grad_()))
    backward(torch.mul(_complex(12, 20), _complex(12, 20)))
    backward(torch.masked_fill(x * 1, torch.rand(32, 48) > 0.7, -2.0))
    backward(F.smooth_l1_loss(x, torch.randn(32, 48), beta=0.25))
    x.detach().to(torch.float8_e4m3fn)
    torch._foreach_mul([torch.randn(40), torch.randn(7, 9)], [0.5, 1.7])


def layers() -> None:
    """Layers whose windows, groups and orders are easily mixed up."""
    x = leaf(2, 16, 11, 13)
    backward(F.pixel_shuffle(x, 2))
    backward(torch.roll(x, (2, -3), (2, 3)))
    backward(F.adaptive_avg_pool2d(x, (4, 5)))
    backward(F.interpolate(x, scale_factor=1.7, mode="nearest"))
    backward(F.grid_sample(x, (torch.rand(2, 7, 8, 2) * 2 - 1).requires_grad_(), align_corners=False))
    backward(F.fold(leaf(2, 36, 25), (7, 7), 3))
    backward(F.group_norm(x, 4, torch.rand(16).requires_grad_(), leaf(16)))
    backward(F.conv2d(x, leaf(12, 4, 3, 3), leaf(12), groups=4))
    backward(F.conv2d(x, leaf(6, 16, 4, 4), leaf(6), padding="same"))
    backward(F.max_pool2d(x, 3, 1))
    backward(F.dropout2d(leaf(32, 48, 4, 4), 0.3))
    for dtype in (torch.float32, torch.bfloat16):
        rows = leaf(96, 256).to(dtype)
        backward(F.rms_norm(rows * 1e-2, (256,), torch.rand(256).to(dtype).requires_grad_(), 1e-5))
        backward(F.linear(rows + 1, leaf(24, 256).to(dtype), leaf(24).to(dtype)))
        backward(F.layer_norm(rows, (256,), torch.rand(256).to(dtype).requires_grad_(), leaf(256).to(dtype)))
        backward(torch.matmul(rows[:, :100], leaf(100, 20).to(dtype)))
    labels = torch.randint(0, 30, (64,)).index_fill(0, torch.arange(0, 64, 5), -100)
    backward(F.cross_entropy(leaf(64, 30), labels))
    backward(F.cross_entropy(leaf(64, 30), torch.randint(0, 30, (64,)), label_smoothing=0.1))
    backward(torch.addmm(leaf(24, 16), leaf(24, 40), leaf(40, 16), alpha=0.3))
    gru = torch.nn.GRU(10, 12, batch_first=True)
    backward(gru(leaf(3, 6, 10))[0])


def attention() -> None:
    """Attention with other numbers of keys than queries, and with blocks that are not whole."""
    for queries, keys, is_causal in ((12, 20, True), (24, 45, False)):
        query, key, value = (leaf(2, 4, positions, 16) for positions in (queries, keys, keys))
        backward(F.scaled_dot_product_attention(query, key, value, is_causal=is_causal))


def reductions() -> None:
    """Sums and variances over several axes, and long ones in 16 bits."""
    x = leaf(6, 20, 30)
    backward(torch.var(x, (1, 2)))
    backward(torch.var(x, 2))
    backward(torch.prod(torch.rand(20, 6).add(0.5).requires_grad_(), 1))
    backward(torch.scatter_reduce(leaf(8, 10), 1, torch.randint(0, 10, (8, 14)), leaf(8, 14), "sum"))
    torch.cumsum(torch.randn(8, 900).bfloat16() + 1, 1)
    backward(F.softmax(x[..., :27] * 3, -1))
    backward(F.log_softmax(x[..., :27], -1))


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
    x = leaf(40, 24)
    for function in (torch.tanh, torch.sigmoid, F.gelu, torch.exp):
        backward(function(x.t()))
    backward(F.softmax(x.t(), -1))
    backward(torch.sum(x.t(), 1))
    backward(F.layer_norm(x.t(), (40,)))
    backward(F.relu(x[7:]))
    backward(x[5:].clone())
    x.t().contiguous()


def values() -> None:
    """Values that a draw does not hit: ties, halves, zeros, NaN and sums beyond 32 bits."""
    torch.sort(torch.randint(0, 4, (6, 30)), dim=-1, stable=True)
    torch.round(torch.arange(-8, 8) / 2)
    torch.amax(torch.tensor([[1.0, math.nan, 3.0], [2.0, 5.0, -1.0]]), 1)
    torch.sum(torch.full((64,), 2**28))
    zeros = torch.tensor([[0.0, 2.0, 3.0], [1.5, 0.0, 0.0], [0.5, 2.0, 1.0]])
    backward(torch.prod(zeros.clone().requires_grad_(), 1))
    backward(torch.pow(zeros.clone().requires_grad_(), 2.5))


def _complex(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.complex64).requires_grad_()


if __name__ == "__main__":
    main()
