"""Calls that compute: element by element, reductions, products, decompositions and spectra."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.engine.replay.sweep.inputs import Draw, flags, index

FUNCTIONS = """abs neg exp exp2 expm1 sin cos tan sinh cosh tanh asinh atan erf erfc sign sgn ceil floor round trunc
    frac square sigmoid relu deg2rad rad2deg logit sinc nan_to_num isnan isinf isfinite signbit""".split()


def pointwise(api: Any, x: Draw) -> None:
    for name in FUNCTIONS:
        api.Torch[name](x.unit(3, 7) if name == "logit" else x(3, 7))
    for name in "log log2 log10 log1p sqrt rsqrt reciprocal lgamma digamma acosh".split():
        api.Torch[name](x.positive(3, 7) + 1)
    for name in "asin acos atanh erfinv".split():
        api.Torch[name](x.unit(3, 7))
    for name in "add sub mul div maximum minimum fmax fmin atan2 hypot logaddexp copysign".split():
        api.Torch[name](x(3, 7), x(3, 7))
    for name in "eq ne lt le gt ge logical_and logical_or logical_xor isclose".split():
        api.Torch[name](x(3, 7), x(3, 7))
    api.Torch.add(x(3, 7), x(7), alpha=2)
    api.Torch.pow(x.positive(3, 7), x(3, 7))
    api.Torch.pow(x(3, 7), 2)
    api.Torch.fmod(x(3, 7), 0.7)
    api.Torch.remainder(x(3, 7), 0.7)
    api.Torch.clamp(x(3, 7), -0.5, 0.5)
    api.Torch.clamp(x(3, 7), min=x(3, 7).detach())
    api.Torch.lerp(x(3, 7), x(3, 7), 0.3)
    api.Torch.addcmul(x(3, 7), x(3, 7), x(3, 7), value=0.5)
    api.Torch.addcdiv(x(3, 7), x(3, 7), x.positive(3, 7))
    api.Torch.where(flags(3, 7), x(3, 7), x(3, 7))
    api.Torch.xlogy(x(3, 7), x.positive(3, 7))
    api.Torch.heaviside(x.plain(3, 7), x.plain(7))
    api.Torch.float_power(x.positive(3, 7), 2.0)
    if x.dtype is not torch.float16:
        api.Torch.nextafter(x.plain(3, 7), x.plain(3, 7))
    api.Torch.special.expit(x(3, 7))
    api.Torch.special.erfcx(x.plain(3, 7).float())
    api.Torch.special.i0(x(3, 7))
    api.Torch.special.log_softmax(x(3, 7), 1)
    api.Torch.special.xlog1py(x(3, 7), x.positive(3, 7))


def reductions(api: Any, x: Draw) -> None:
    for name in "sum mean prod std var amax amin max min median logsumexp norm argmax argmin all any".split():
        args: list[Any] = [x(4, 6)]
        api.Torch[name](*args, *([1] if name not in ("norm",) else []))
    for name in "sum mean max min std var prod norm median argmax argmin".split():
        api.Torch[name](x(4, 6))
    api.Torch.sum(x(4, 6), dim=[0, 1], keepdim=True)
    api.Torch.sum(x(4, 6), 1, dtype=torch.float32)
    api.Torch.var_mean(x(4, 6), dim=1)
    api.Torch.std_mean(x(4, 6))
    api.Torch.nansum(x(4, 6))
    api.Torch.nanmean(x(4, 6), 0)
    api.Torch.aminmax(x(4, 6))
    api.Torch.cumsum(x(4, 6), 1)
    api.Torch.cumprod(x(4, 6), dim=0)
    has_gradient = _has_gradient(lambda y: torch.logcumsumexp(y, 0), x.dtype)
    api.Torch.logcumsumexp(x(4, 6) if has_gradient else x(4, 6).float(), 1)
    api.Torch.cummax(x(4, 6), 1)
    api.Torch.count_nonzero(x(4, 6))
    api.Torch.sort(x(4, 6), dim=1, descending=True)
    api.Torch.sort(x(4, 6), stable=True)
    api.Torch.argsort(x(4, 6))
    api.Torch.topk(x(4, 6), 3)
    api.Torch.topk(x(4, 6), k=2, dim=0, largest=False)
    api.Torch.kthvalue(x(4, 6), 2)
    api.Torch.mode(x(4, 6), 1)
    api.Torch.unique(x.plain(4, 6), return_inverse=True, return_counts=True)
    api.Torch.unique_consecutive(x.plain(9))
    api.Torch.histc(x.plain(20).float(), 5, 0, 1)
    api.Torch.bincount(index(5, 20))
    api.Torch.bincount(index(5, 20), torch.rand(20))
    api.Torch.searchsorted(torch.arange(8.0).to(x.dtype), x.plain(5))
    api.Torch.bucketize(x.plain(5), torch.arange(4.0).to(x.dtype))
    api.Torch.dist(x(4, 6), x(4, 6))
    api.Torch.cdist(x(4, 6).float(), x(5, 6).float())
    api.Torch.trapezoid(x(4, 6))
    api.Torch.quantile(x(4, 6).float(), 0.3, dim=1)
    api.Torch.diff(x(4, 6))
    api.Torch.trace(x(4, 4) if _has_gradient(torch.trace, x.dtype) else x(4, 4).float())


def _has_gradient(function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> bool:
    """Return whether torch computes a function and its gradient on a CPU: torch 2.7 lacks some of 16 bits."""
    try:
        function(torch.ones(2, 2, dtype=dtype, requires_grad=True)).sum().backward()
    except RuntimeError:
        return False
    return True


def products(api: Any, x: Draw) -> None:
    op = api.Torch
    op.matmul(x(4, 6), x(6, 5))
    op.matmul(x(2, 4, 6), x(6))
    op.mm(x(4, 6), x(6, 5))
    op.bmm(x(2, 4, 6), x(2, 6, 5))
    op.mv(x(4, 6), x(6))
    op.dot(x(6), x(6))
    op.vdot(x(6), x(6))
    op.inner(x(4, 6), x(5, 6))
    op.outer(x(4), x(5))
    op.kron(x(2, 3), x(3, 2))
    op.addmm(x(4, 5), x(4, 6), x(6, 5), beta=0.5, alpha=2)
    op.addmv(x(4), x(4, 6), x(6))
    op.addr(x(4, 5), x(4), x(5))
    op.baddbmm(x(2, 4, 5), x(2, 4, 6), x(2, 6, 5))
    op.addbmm(x(4, 5), x(2, 4, 6), x(2, 6, 5))
    op.einsum("bij,bjk->bik", x(2, 3, 4), x(2, 4, 5))
    op.einsum("ij,jk->ik", [x(3, 4), x(4, 5)])
    op.tensordot(x(3, 4, 5), x(4, 5, 6), 2)
    op.chain_matmul(x(3, 4), x(4, 5), x(5, 2))
    op.cross(x(4, 3), x(4, 3), dim=1)
    op.linalg.norm(x(4, 6).float())
    op.linalg.vector_norm(x(4, 6), 2, dim=1)
    op.linalg.multi_dot([x(3, 4), x(4, 5), x(5, 2)])
    op.norm(x(4, 6), p=2, dim=1)


def decompositions(api: Any, x: Draw) -> None:
    linalg, matrix = api.Torch.linalg, (x.plain(4, 4) + 4 * torch.eye(4)).requires_grad_()
    spd = (matrix @ matrix.mT).detach().requires_grad_()
    linalg.cholesky(spd)
    linalg.cholesky_ex(spd)
    api.Torch.cholesky(spd)
    api.Torch.cholesky_inverse(torch.linalg.cholesky(spd).detach())
    api.Torch.cholesky_solve(x(4, 2), torch.linalg.cholesky(spd).detach())
    linalg.inv(matrix)
    linalg.inv_ex(matrix)
    api.Torch.inverse(matrix)
    linalg.det(matrix)
    linalg.slogdet(matrix)
    api.Torch.logdet(spd)
    linalg.solve(matrix, x(4, 2))
    linalg.solve_triangular(matrix.triu(), x(4, 2), upper=True)
    api.Torch.triangular_solve(x(4, 2), matrix.triu().detach())
    linalg.lstsq(x(6, 4), x(6, 2))
    linalg.qr(matrix)
    api.Torch.qr(matrix)
    linalg.svd(matrix, full_matrices=False)
    linalg.svdvals(matrix)
    api.Torch.svd(matrix)
    linalg.eigh(spd)
    linalg.eigvalsh(spd)
    linalg.eig(matrix.detach())
    linalg.eigvals(matrix.detach())
    linalg.lu_factor(matrix.detach())
    linalg.lu(matrix.detach())
    linalg.pinv(matrix)
    linalg.matrix_norm(matrix)
    linalg.norm(matrix, 2)
    linalg.cond(matrix)
    linalg.matrix_rank(matrix.detach())
    linalg.matrix_power(matrix, 3)
    linalg.matrix_exp(matrix)
    api.Torch.matrix_exp(matrix)
    linalg.tensorinv(matrix.reshape(2, 2, 4), 2)
    linalg.cross(x(4, 3), x(4, 3))
    linalg.householder_product(x(4, 2), x(2))
    linalg.vander(x(4))
    api.Torch.pinverse(matrix)
    api.Torch.ormqr(x.plain(4, 2), x.plain(2), x.plain(4, 3))


def spectra(api: Any, x: Draw) -> None:
    fft = api.Torch.fft
    fft.fft(x(8))
    fft.rfft(x(3, 8))
    fft.irfft(x.complex(3, 5))
    fft.ifft(x.complex(3, 8))
    fft.fft2(x(4, 4))
    fft.fftn(x(2, 4, 4), dim=(1, 2))
    fft.fftshift(x(8))
    fft.fftfreq(8)
    api.Torch.stft(x(64), 16, 4, window=torch.hann_window(16), return_complex=True)
    api.Torch.view_as_real(x.complex(3, 4))
    api.Torch.view_as_complex(x(3, 4, 2))
    api.Torch.complex(x(3, 4), x(3, 4))
    api.Torch.polar(x.positive(3, 4), x(3, 4))
    api.Torch.real(x.complex(3, 4))
    api.Torch.imag(x.complex(3, 4))
