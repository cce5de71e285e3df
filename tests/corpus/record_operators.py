"""Records ``tests/data/dumps/operators``: operators and values that the recorded training steps do not hold.

Run it as ``python -m tests.corpus.record_operators FOLDER``.
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
    with record(Path(sys.argv[1]), level="L1", task="statistics"):
        products()
        functions()
        reductions()
        selections()
        moves()
        layers()
    with record(Path(sys.argv[1]) / "values", level="L1", task="tensor"):
        special_values()
    matrix, hermitian = leaf(12, 12), _hermitian(torch.linspace(1.0, 3.0, 12))
    with record(Path(sys.argv[1]) / "linear_algebra", level="L1", task="statistics"):
        linear_algebra(matrix, hermitian)
    matrix, hermitian = _ill_conditioned(12)
    with record(Path(sys.argv[1]) / "ill_conditioned", level="L1", task="tensor"):
        linear_algebra(matrix, hermitian)


def products() -> None:
    """Long inner dimensions in three formats, forward and backward."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        x = leaf(48, 512).to(dtype)
        weight, bias = (leaf(64, 512) / 16).to(dtype), leaf(64).to(dtype)
        backward(F.linear(x, weight, bias))
        backward(torch.matmul(leaf(2, 24, 384).to(dtype), leaf(2, 384, 16).to(dtype)))
        backward(torch.baddbmm(leaf(2, 16, 16).to(dtype), leaf(2, 16, 256).to(dtype), leaf(2, 256, 16).to(dtype)))


def functions() -> None:
    """Elementwise functions in two formats."""
    for dtype in (torch.float32, torch.bfloat16):
        x = (2 * leaf(24, 64)).to(dtype)
        for function in (F.gelu, torch.exp, torch.erf, torch.tanh, torch.sigmoid, torch.sin, F.softplus, F.elu):
            backward(function(x))
        backward(torch.log(x.abs() + 0.5))
        backward(torch.rsqrt(x.abs() + 0.5))
        backward(torch.clamp(x, -1.0, 1.0))
        backward(torch.div(x, x.abs() + 1))
        backward(F.hardswish(x))
        for number in (3, 0.7, 1.9, 5.3e-4):
            backward(torch.div(x, number))
            backward(torch.mul(x, number))
            backward(torch.add(x, x, alpha=number))


def reductions() -> None:
    """Sums over long rows."""
    for dtype in (torch.float32, torch.bfloat16):
        x = (leaf(16, 700) + 0.3).to(dtype)
        backward(torch.sum(x, -1))
        backward(torch.mean(x, -1))
        backward(torch.var(x, -1))
        backward(torch.std(x, 0))
        backward(torch.norm(x))
        backward(torch.cumsum(x, -1))
        backward(torch.logsumexp(x, -1))
        backward(F.softmax(x, -1))
        backward(F.log_softmax(x, -1))
        backward(F.layer_norm(x, (700,), torch.ones(700, dtype=dtype), torch.zeros(700, dtype=dtype)))


def selections() -> None:
    """Orders, indices and integers."""
    x = leaf(12, 40)
    whole = torch.randint(-1000, 1000, (12, 40))
    backward(torch.sort(x, -1)[0])
    backward(torch.topk(x, 5, -1)[0])
    torch.argmax(x, -1)
    torch.argsort(torch.randint(0, 9, (12, 40)), -1)
    torch.max(x, -1)
    backward(torch.gather(x, 1, torch.randint(0, 40, (12, 7))))
    backward(torch.index_select(x, 0, torch.tensor([3, 3, 0, 11])))
    backward(torch.masked_fill(x, x > 0.5, -1.5))
    backward(torch.scatter_add(x, 1, torch.randint(0, 40, (12, 9)), leaf(12, 9)))
    torch.add(whole, whole)
    torch.mul(whole, 100)
    torch.cumsum(whole, -1)
    torch.all(whole > -900)
    torch.bincount(whole.abs().flatten())


def moves() -> None:
    """Copies and views."""
    x = leaf(6, 10)
    backward(torch.cat([x, 2 * x, -x], 1))
    backward(torch.split(x, 5, 1)[1])
    backward(x.transpose(0, 1))
    backward(x[1:5, ::2])
    backward(x.reshape(4, 15))
    backward(F.pad(x, [1, 2]))
    torch.arange(5, 50, 3)
    torch.where(x.detach() > 0, x.detach(), -1.0)


def layers() -> None:
    """Layers of vision models, and dropout on many elements."""
    x = leaf(2, 8, 16, 16)
    backward(F.group_norm(x, 4, torch.ones(8), torch.zeros(8)))
    backward(F.max_pool2d(x - 3, 3, 2, 1))
    backward(F.avg_pool2d(x, 2))
    backward(F.interpolate(x, scale_factor=2.0, mode="bilinear"))
    backward(F.conv2d(x, leaf(12, 8, 3, 3), leaf(12), 1, 1, 1, 1))
    backward(F.conv_transpose2d(x, leaf(8, 6, 3, 3), leaf(6), 2))
    backward(F.dropout(leaf(64, 512), 0.1))
    backward(F.mse_loss(x, torch.randn_like(x)))
    backward(F.binary_cross_entropy_with_logits(x, torch.rand_like(x)))
    for dtype in (torch.float32, torch.bfloat16):
        query, key, value = (leaf(2, 4, 32, 16).to(dtype) for _ in range(3))
        backward(F.scaled_dot_product_attention(query, key, value, is_causal=True))


def special_values() -> None:
    """NaN, infinities, subnormals and values that overflow."""
    nan, inf = math.nan, math.inf
    special = torch.tensor([1.0, nan, -2.0, inf, -inf, 0.0, -0.0, 1e-40, -3e-39, 3e38, 5.0, nan])
    torch.add(special, 1.5)
    torch.mul(special, 2.0)
    torch.mul(torch.tensor([3e-20, 1e-22, 5.0]), 1e-20)
    torch.div(special, 4.0)
    torch.sqrt(special)
    torch.exp(special)
    torch.log(special)
    F.relu(special)
    torch.tanh(special)
    torch.cumsum(special, 0)
    torch.maximum(special, torch.zeros(12))
    torch.where(special > 0, special, -special)
    F.softmax(torch.tensor([[0.0, -inf, 1.0], [inf, 0.0, 1.0], [88.0, 120.0, 3.0]]), -1)
    torch.matmul(torch.tensor([[1.0, inf], [nan, 1.0], [1e30, 1.0]]), torch.tensor([[1e30, 1.0], [1.0, 2.0]]))


def linear_algebra(matrix: torch.Tensor, hermitian: torch.Tensor) -> None:
    """Factorizations of a square matrix and of a positive definite one, and what is solved with them."""
    right = leaf(12, 3)
    for factors in (
        torch.linalg.svd(matrix, full_matrices=False),
        torch.svd(matrix),
        torch.linalg.eigh(hermitian),
        torch.linalg.qr(matrix),
        (torch.linalg.cholesky(hermitian),),
        (torch.linalg.slogdet(matrix)[1],),
        (torch.linalg.lstsq(matrix, right)[0],),
    ):
        torch.autograd.backward(factors, [torch.randn_like(each) for each in factors])
    for values in (
        torch.inverse(matrix),
        torch.linalg.inv(matrix),
        torch.linalg.solve(matrix, right),
        torch.linalg.pinv(matrix),
        torch.pinverse(matrix),
        torch.linalg.svdvals(matrix),
        torch.linalg.eigvalsh(hermitian),
        torch.det(matrix),
        torch.logdet(hermitian),
        torch.matrix_exp(matrix),
    ):
        backward(values)
    torch.linalg.eigvals(matrix.detach())
    torch.linalg.eig(matrix.detach())


def _hermitian(values: torch.Tensor) -> torch.Tensor:
    """Return a positive definite matrix with these eigenvalues."""
    basis = torch.linalg.qr(torch.randn(len(values), len(values), dtype=torch.float64))[0]
    matrix = basis * values @ basis.mT
    return ((matrix + matrix.mT) / 2).float().requires_grad_()


def _ill_conditioned(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a square and a positive definite matrix whose singular values fall by a hundred thousand.

    The square one's first pivot is small besides.
    """
    values = torch.logspace(0, -5, size, dtype=torch.float64)
    left, right = (torch.linalg.qr(torch.randn(size, size, dtype=torch.float64))[0] for _ in range(2))
    matrix = left * values @ right
    matrix[0, 0] *= 1e-6
    return matrix.float().requires_grad_(), _hermitian(values)


if __name__ == "__main__":
    main()
