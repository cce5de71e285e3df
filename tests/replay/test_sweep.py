"""Real APIs, recorded on a healthy CPU and replayed there: nearly all get a verdict and none an alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Draw:
    """Inputs in one dtype: ``x(2, 3)`` is normal (integers: in [1, 6)), ``x.positive(2, 3)`` in [0.5, 2)."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, *shape: int) -> torch.Tensor:
        if not (self.dtype.is_floating_point or self.dtype.is_complex):
            return torch.randint(1, 6, shape).to(self.dtype)
        return self._wanting_gradients(torch.randn(shape, dtype=torch.complex64 if self.dtype.is_complex else None))

    def positive(self, *shape: int) -> torch.Tensor:
        return self._wanting_gradients(torch.rand(shape) * 1.5 + 0.5)

    def unit(self, *shape: int) -> torch.Tensor:
        return self._wanting_gradients(torch.rand(shape) * 0.8 + 0.1)

    def plain(self, *shape: int) -> torch.Tensor:
        return self(*shape).detach()

    def _wanting_gradients(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.dtype).requires_grad_()


def index(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


def flags(*shape: int) -> torch.Tensor:
    return torch.rand(shape) < 0.5


def activations(api: Any, x: Draw) -> None:
    F = api.Functional
    for name in """relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid hardshrink softshrink
        softplus softsign tanhshrink logsigmoid""".split():
        F[name](x(4, 9))
    F.relu(x(4, 9) * 1, inplace=True)
    F.elu(x(4, 9) * 1, 1.0, True)
    F.silu(x(4, 9) * 1, inplace=True)
    F.hardtanh(x(4, 9), -0.5, 0.5)
    F.threshold(x(4, 9), 0.1, 20.0)
    F.softmax(x(4, 9), dim=-1)
    F.softmax(x(4, 9), dim=1, dtype=torch.float32)
    F.log_softmax(x(4, 9), 1)
    F.softmin(x(4, 9), dim=0)
    F.glu(x(4, 8), -1)
    F.prelu(x(2, 3, 4), x(3))
    F.gelu(x(4, 9), approximate="tanh")
    F.normalize(x(4, 9), dim=1)
    api.Torch.softmax(x(4, 9), -1)
    api.Torch.relu_(x(4, 9) * 1)
    api.Torch.sigmoid(x(4, 9))


def layers(api: Any, x: Draw) -> None:
    F = api.Functional
    F.linear(x(4, 8), x(5, 8), x(5))
    F.linear(x(2, 4, 8), x(5, 8))
    F.bilinear(x(4, 3), x(4, 5), x(6, 3, 5), x(6))
    F.conv1d(x(2, 3, 10), x(4, 3, 3), x(4), 1, 1)
    F.conv2d(x(2, 3, 8, 8), x(4, 3, 3, 3), x(4), (1, 1), (1, 1), (1, 1), 1)
    F.conv2d(x(1, 4, 6, 6), x(4, 1, 3, 3), None, padding="same", groups=4)
    F.conv3d(x(1, 2, 4, 4, 4), x(3, 2, 2, 2, 2))
    F.conv_transpose1d(x(1, 3, 5), x(3, 2, 3))
    F.conv_transpose2d(x(1, 3, 5, 5), x(3, 2, 3, 3), stride=2)
    F.layer_norm(x(4, 6, 8), (8,), x(8), x(8), 1e-5)
    F.layer_norm(x(4, 6, 8), (6, 8))
    F.rms_norm(x(4, 8), (8,), x(8), 1e-6)
    F.group_norm(x(2, 6, 5), 3, x(6), x(6))
    F.batch_norm(x(4, 3, 5), x.plain(3), x.positive(3).detach(), x(3), x(3), True, 0.1, 1e-5)
    F.batch_norm(x(4, 3, 5), x.plain(3), x.positive(3).detach(), weight=x(3), bias=x(3), training=False)
    F.instance_norm(x(2, 3, 7), x.plain(3), x.positive(3).detach(), x(3), x(3), True, 0.1, 1e-5)
    F.local_response_norm(x(2, 6, 5), 3)
    F.embedding(index(10, 3, 4), x(10, 6), padding_idx=1)
    F.embedding_bag(index(10, 12), x(10, 6), torch.tensor([0, 4, 9]))
    F.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 6, 8), x(2, 2, 6, 8))
    F.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8), is_causal=True)
    F.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8), flags(5, 5) | torch.eye(5).bool())


def pooling(api: Any, x: Draw) -> None:
    F = api.Functional
    F.max_pool1d(x(2, 3, 9), 3)
    F.max_pool2d(x(2, 3, 9, 9), 3, 2, 1)
    F.max_pool2d(x(2, 3, 9, 9), (2, 2), return_indices=True)
    F.max_pool3d(x(1, 2, 4, 4, 4), 2)
    F.avg_pool1d(x(2, 3, 9), 3)
    F.avg_pool2d(x(2, 3, 8, 8), 2)
    F.avg_pool3d(x(1, 2, 4, 4, 4), 2)
    F.lp_pool2d(x.positive(2, 3, 8, 8), 2.0, 2)
    F.adaptive_avg_pool1d(x(2, 3, 9), 4)
    F.adaptive_avg_pool2d(x(2, 3, 9, 9), (3, 3))
    F.adaptive_max_pool2d(x(2, 3, 9, 9), (3, 3))
    F.max_unpool2d(x(2, 3, 4, 4), torch.arange(0, 64, 4).expand(2, 3, 16).reshape(2, 3, 4, 4), 2)
    F.interpolate(x(1, 3, 4, 4), scale_factor=2, mode="nearest")
    F.interpolate(x(1, 3, 4, 4), (7, 7), mode="bilinear", align_corners=False)
    F.interpolate(x(1, 3, 4, 4), [8, 8], None, "bicubic", True)
    F.grid_sample(x(1, 3, 5, 5), (x.unit(1, 4, 4, 2) * 2 - 1).detach(), align_corners=True)
    F.affine_grid(x(1, 2, 3), (1, 3, 4, 4), align_corners=False)
    F.pad(x(2, 3, 4, 4), (1, 1, 1, 1), mode="reflect")
    F.pad(x(2, 3, 4), (1, 2), "constant", 1.0)
    F.pixel_shuffle(x(1, 8, 3, 3), 2)
    F.unfold(x(1, 3, 6, 6), (2, 2))
    F.fold(x(1, 12, 9), (4, 4), (2, 2))


def losses(api: Any, x: Draw) -> None:
    F = api.Functional
    F.cross_entropy(x(6, 5), index(5, 6))
    F.cross_entropy(x(6, 5), torch.tensor([0, -100, 3, 4, -100, 1]), ignore_index=-100, label_smoothing=0.1)
    F.cross_entropy(x(6, 5), index(5, 6), x.positive(5).detach(), None, -100, None, "sum")
    F.cross_entropy(x(2, 5, 4), index(5, 2, 4), reduction="none")
    F.cross_entropy(x(6, 5), x(6, 5).softmax(1).detach())
    F.nll_loss(x(6, 5), index(5, 6))
    F.mse_loss(x(4, 6), x(4, 6))
    F.l1_loss(x(4, 6), x(4, 6))
    F.smooth_l1_loss(x(4, 6), x(4, 6), reduction="sum")
    F.huber_loss(x(4, 6), x(4, 6))
    F.kl_div(x(4, 6), x.unit(4, 6), reduction="batchmean")
    F.binary_cross_entropy(x.unit(4, 6), x.unit(4, 6).detach())
    F.binary_cross_entropy_with_logits(x(4, 6), x.unit(4, 6).detach())
    F.cosine_similarity(x(4, 6), x(4, 6), dim=1)
    F.cosine_embedding_loss(x(4, 6), x(4, 6), torch.tensor([1, -1, 1, -1]))
    F.margin_ranking_loss(x(6), x(6), torch.tensor([1, -1, 1, -1, 1, 1]))
    F.hinge_embedding_loss(x(6), torch.tensor([1, -1, 1, -1, 1, 1]))
    F.triplet_margin_loss(x(4, 6), x(4, 6), x(4, 6))
    F.multi_margin_loss(x(4, 6), index(6, 4))
    F.soft_margin_loss(x(6), torch.tensor([1.0, -1, 1, -1, 1, 1]).to(x.dtype))
    F.poisson_nll_loss(x(4, 6), x.positive(4, 6).detach())
    F.gaussian_nll_loss(x(4, 6), x(4, 6).detach(), x.positive(4, 6))
    F.ctc_loss(
        torch.randn(9, 2, 5).log_softmax(-1).requires_grad_(), index(4, 2, 3) + 1, torch.tensor([9, 9]), torch.tensor([3, 2])
    )
    F.one_hot(index(5, 6), 5)
    F.pairwise_distance(x(4, 6), x(4, 6))


def pointwise(api: Any, x: Draw) -> None:
    for name in """abs neg exp exp2 expm1 sin cos tan sinh cosh tanh asinh atan erf erfc sign sgn ceil floor round trunc frac
        square sigmoid relu deg2rad rad2deg logit sinc nan_to_num isnan isinf isfinite signbit""".split():
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
    api.Torch.nextafter(x.plain(3, 7), x.plain(3, 7)) if x.dtype is not torch.float16 else None
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
    api.Torch.logcumsumexp(x(4, 6), 1)
    api.Torch.cummax(x(4, 6), 1)
    api.Torch.count_nonzero(x(4, 6))
    api.Torch.sort(x(4, 6), dim=1, descending=True)
    api.Torch.sort(x(4, 6), stable=True)
    api.Torch.argsort(x(4, 6))
    api.Torch.topk(x(4, 6), 3)
    api.Torch.topk(x(4, 6), k=2, dim=0, largest=False)
    api.Torch.kthvalue(x(4, 6), 2)
    api.Torch.mode(x(4, 6), 1)
    api.Torch.unique(x(4, 6), return_inverse=True, return_counts=True)
    api.Torch.unique_consecutive(x(9))
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
    api.Torch.trace(x(4, 4))


def products(api: Any, x: Draw) -> None:
    T = api.Torch
    T.matmul(x(4, 6), x(6, 5))
    T.matmul(x(2, 4, 6), x(6))
    T.mm(x(4, 6), x(6, 5))
    T.bmm(x(2, 4, 6), x(2, 6, 5))
    T.mv(x(4, 6), x(6))
    T.dot(x(6), x(6))
    T.vdot(x(6), x(6))
    T.inner(x(4, 6), x(5, 6))
    T.outer(x(4), x(5))
    T.kron(x(2, 3), x(3, 2))
    T.addmm(x(4, 5), x(4, 6), x(6, 5), beta=0.5, alpha=2)
    T.addmv(x(4), x(4, 6), x(6))
    T.addr(x(4, 5), x(4), x(5))
    T.baddbmm(x(2, 4, 5), x(2, 4, 6), x(2, 6, 5))
    T.addbmm(x(4, 5), x(2, 4, 6), x(2, 6, 5))
    T.einsum("bij,bjk->bik", x(2, 3, 4), x(2, 4, 5))
    T.einsum("ij,jk->ik", [x(3, 4), x(4, 5)])
    T.tensordot(x(3, 4, 5), x(4, 5, 6), 2)
    T.chain_matmul(x(3, 4), x(4, 5), x(5, 2))
    T.cross(x(4, 3), x(4, 3), dim=1)
    T.linalg.norm(x(4, 6).float())
    T.linalg.vector_norm(x(4, 6), 2, dim=1)
    T.linalg.multi_dot([x(3, 4), x(4, 5), x(5, 2)])
    T.norm(x(4, 6), p=2, dim=1)


def shapes(api: Any, x: Draw) -> None:
    T, M = api.Torch, api.Tensor
    T.cat([x(2, 3), x(4, 3)], 0)
    T.cat((x(2, 3), x(2, 5)), dim=1)
    T.stack([x(2, 3), x(2, 3)], dim=1)
    for name in "hstack vstack dstack column_stack".split():
        T[name]([x(2, 3), x(2, 3)])
    T.block_diag(x(2, 3), x(3, 2))
    T.meshgrid(x(3), x(4), indexing="ij")
    T.broadcast_tensors(x(3, 1), x(4))
    T.split(x(6, 4), 2)
    T.split(x(6, 4), [2, 4], dim=0)
    T.chunk(x(6, 4), 3)
    T.tensor_split(x(6, 4), (1, 4))
    T.unbind(x(3, 4))
    T.flatten(x(2, 3, 4), 1)
    T.reshape(x(2, 6), (3, 4))
    T.transpose(x(2, 6), 0, 1)
    T.permute(x(2, 3, 4), (2, 0, 1))
    T.squeeze(x(2, 1, 3))
    T.unsqueeze(x(2, 3), 1)
    T.flip(x(2, 3), [1])
    T.roll(x(2, 6), 2, 1)
    T.rot90(x(3, 4))
    T.tril(x(4, 4), diagonal=1)
    T.triu(x(4, 4))
    T.diag(x(4))
    T.diagonal(x(4, 4))
    T.tile(x(2, 3), (2, 2))
    T.repeat_interleave(x(2, 3), 2, dim=1)
    T.repeat_interleave(x(3, 2), torch.tensor([1, 2, 1]), dim=0)
    T.movedim(x(2, 3, 4), 0, 2)
    T.narrow(x(5, 3), 0, 1, 3)
    T.select(x(5, 3), 0, 2)
    T.atleast_2d(x(3))
    T.full_like(x.plain(3, 4), 0.25)
    T.zeros_like(x.plain(3, 4), dtype=torch.float32)
    T.ones_like(x.plain(3, 4))
    T.arange(0, 5, 1, dtype=x.dtype)
    T.linspace(0, 1, 5, dtype=x.dtype)
    T.combinations(x(4))
    T.cartesian_prod(x(2), x(3))
    M.view(x(2, 6), 3, 4)
    M.view(x(2, 6), (3, 4))
    M.reshape(x(2, 6), -1)
    M.expand(x(1, 3), 4, 3)
    M.expand_as(x(1, 3), x(4, 3))
    M.repeat(x(2, 3), 2, 1)
    M.permute(x(2, 3, 4), 0, 2, 1)
    M.transpose(x(2, 6), -1, -2)
    M.T(x(2, 3))
    M.mT(x(2, 3))
    M.contiguous(x(2, 3))
    M.contiguous(x(2, 3, 4, 4), memory_format=torch.channels_last)
    M.unfold(x(10), 0, 3, 2)
    M.new_zeros(x(2, 3), (3, 4))
    M.new_full(x(2, 3), (3, 4), 1.5)
    M.size(x(2, 3))
    M.clone(x(2, 3))
    M.detach(x(2, 3))
    M.unflatten(x(2, 6), 1, (2, 3))
    M.tolist(x.plain(3))
    M.item(x.plain(1))


def casts(api: Any, x: Draw) -> None:
    M = api.Tensor
    for name in "float half bfloat16 double int long bool".split():
        M[name](x(3, 5))
    M.to(x(3, 5), torch.float32)
    M.to(x(3, 5), dtype=torch.float16)
    M.to(x(3, 5), torch.device("cpu"))
    M.to(x(3, 5), device=torch.device("cpu"), dtype=torch.bfloat16)
    M.to(x(3, 5), x(1).double())
    M.type(x(3, 5), torch.float64)
    M.type_as(x(3, 5), torch.zeros(1, dtype=torch.float16))
    M.view(x.plain(4, 8), dtype=torch.uint8)
    M.view(x.plain(4, 8), torch.int16) if x.dtype.itemsize == 2 else None


def methods(api: Any, x: Draw) -> None:
    M = api.Tensor
    for name in "__add__ __sub__ __mul__ __truediv__ __radd__ __rsub__ __rmul__ __rdiv__ __eq__ __ne__ __lt__ __gt__".split():
        M[name](x(3, 5), x(3, 5))
    M["__add__"](x(3, 5), 2.5)
    M["__pow__"](x(3, 5), 2)
    M["__neg__"](x(3, 5))
    M["__matmul__"](x(3, 5), x(5, 4))
    M["__iadd__"](x(3, 5) * 1, x(3, 5))
    M["__imul__"](x(3, 5) * 1, 0.5)
    M["__itruediv__"](x(3, 5) * 1, 3.0)
    M["__getitem__"](x(4, 6), 1)
    M["__getitem__"](x(4, 6), (slice(1, 3), None, ...))
    M["__getitem__"](x(4, 6), index(4, 3))
    M["__getitem__"](x(4, 6), (index(4, 3), index(6, 3)))
    M["__getitem__"](x(4, 6), (slice(None), index(6, 3)))
    M["__getitem__"](x(4, 6), flags(4, 6))
    M["__getitem__"](x(4, 6), (flags(4), 2))
    M["__getitem__"](x(4, 6), (..., index(6, 2)))
    M["__getitem__"](x(4, 6), [0, 2])
    M["__setitem__"](x(4, 6) * 1, (slice(1, 3), slice(None)), x(2, 6))
    M["__setitem__"](x(4, 6) * 1, flags(4, 6), 1.0)
    M["__setitem__"](x(4, 6) * 1, index(4, 1), x(6))
    for name in "add_ sub_ mul_ copy_".split():
        M[name](x(3, 5) * 1, x(3, 5))
    M.div_(x(3, 5) * 1, x.positive(3, 5))
    for name in "exp_ tanh_ sigmoid_ relu_ neg_ abs_ zero_".split():
        M[name](x(3, 5) * 1)
    M.fill_(x(3, 5) * 1, 2.0)
    M.clamp_(x(3, 5) * 1, -1, 1)
    M.addcmul_(x.plain(3, 5), x.plain(3, 5), x.plain(3, 5), value=0.1)
    M.addcdiv_(x.plain(3, 5), x.plain(3, 5), x.positive(3, 5).detach(), value=-0.1)
    M.lerp_(x.plain(3, 5), x.plain(3, 5), 0.1)
    M.masked_fill(x(3, 5), flags(3, 5), -1e4)
    M.masked_fill_(x(3, 5) * 1, flags(5), 0)
    M.masked_select(x(3, 5), flags(3, 5))
    M.masked_scatter(x(3, 5), flags(3, 5), x(15))
    M.gather(x(3, 5), 1, index(5, 3, 2))
    M.scatter(x(3, 5), 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), x(3, 2))
    M.scatter_(x(3, 5) * 1, 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), 1.0)
    M.scatter_add(x(3, 5), 0, index(3, 2, 5), x(2, 5))
    M.scatter_add_(x(3, 5) * 1, dim=0, index=index(3, 2, 5), src=x(2, 5))
    M.scatter_reduce(x(3, 5), 0, index(3, 2, 5), x(2, 5), reduce="amax")
    M.index_select(x(3, 5), 1, index(5, 4))
    M.index_add(x(3, 5), 0, index(3, 2), x(2, 5))
    M.index_add_(x(3, 5) * 1, 0, index(3, 2), x(2, 5))
    M.index_copy(x(3, 5), 0, torch.tensor([2, 0]), x(2, 5))
    M.index_fill(x(3, 5), 1, index(5, 2), 0.5)
    M.index_put(x(3, 5), (torch.tensor([0, 2]), torch.tensor([1, 3])), x(2))
    M.index_put_(x(3, 5) * 1, (torch.tensor([0, 2]),), x(2, 5), accumulate=True)
    M.take(x(3, 5), index(15, 4))
    M.take_along_dim(x(3, 5), index(5, 3, 2), 1)
    M.put_(x(3, 5) * 1, torch.tensor([0, 7, 3]), x(3))
    M.nonzero(x.plain(3, 5))
    M.sum(x(3, 5), -1, keepdim=True)
    M.mean(x(3, 5), (0, 1))
    M.max(x(3, 5), dim=-1)
    M.norm(x(3, 5))
    M.softmax(x(3, 5), dim=-1)
    M.cumsum(x(3, 5), dim=0)
    M.fill_diagonal_(x.plain(4, 4), 3.0)
    M.tril_(x.plain(4, 4))
    M.where(x(3, 5), flags(3, 5), x(3, 5))
    M.is_nonzero(x.plain(1))
    M.t(x(3, 5))
    M.numel(x(3, 5))
    M.dim(x(3, 5))


def aten(api: Any, x: Draw) -> None:
    A = api.Aten
    A.add.Tensor(x(3, 5), x(3, 5))
    A.add_.Tensor(x(3, 5) * 1, x(3, 5))
    A.mul(x(3, 5), x(3, 5))
    A._softmax.default(x(3, 5), -1, False)
    A._log_softmax.default(x(3, 5), -1, False)
    A.addmm.default(x(4), x(3, 5), x(5, 4))
    A.bmm.default(x(2, 3, 4), x(2, 4, 5))
    A.native_layer_norm.default(x(3, 5), [5], x(5), x(5), 1e-5)
    A.native_group_norm.default(x(2, 6, 4), x(6), x(6), 2, 6, 4, 3, 1e-5)
    A.native_batch_norm.default(x(4, 3, 5), x(3), x(3), x.plain(3), x.positive(3).detach(), True, 0.1, 1e-5)
    A.convolution.default(x(1, 3, 6, 6), x(4, 3, 3, 3), x(4), [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    A.max_pool2d_with_indices.default(x(1, 3, 6, 6), [2, 2], [2, 2])
    A.avg_pool2d.default(x(1, 3, 6, 6), [2, 2])
    A.embedding.default(x(10, 4), index(10, 3))
    A.index.Tensor(x(4, 6), [index(4, 3), index(6, 3)])
    A.index_select.default(x(4, 6), 0, index(4, 3))
    A.gather.default(x(4, 6), 1, index(6, 4, 2))
    A.nll_loss_forward.default(x(6, 5), index(5, 6), None, 1, -100)
    A.sum.dim_IntList(x(3, 5), [1], True)
    A.mean.dim(x(3, 5), [-1])
    A.topk.default(x(3, 5), 2)
    A.sort.default(x(3, 5), 1)
    A.argmax.default(x(3, 5), 1)
    A.cat.default([x(3, 5), x(2, 5)])
    A.stack.default([x(3, 5), x(3, 5)])
    A.split.Tensor(x(6, 4), 2)
    A.view.default(x(3, 4), [4, 3])
    A._to_copy.default(x(3, 4), dtype=torch.float32)
    A.where.self(flags(3, 4), x(3, 4), x(3, 4))
    A.gelu.default(x(3, 4))
    A.gelu_backward.default(x.plain(3, 4), x.plain(3, 4))
    A.threshold_backward.default(x.plain(3, 4), x.plain(3, 4), 0)
    A.native_layer_norm_backward.default(
        x.plain(3, 5), x.plain(3, 5), [5], x.plain(3, 1).float(), x.positive(3, 1).detach().float(), x.plain(5), x.plain(5),
        [True, True, True],
    ) if x.dtype is torch.float32 else None
    A.clamp.default(x(3, 4), -1, 1)
    A.pow.Tensor_Scalar(x(3, 4), 3)
    A.linear.default(x(3, 4), x(5, 4))


def decompositions(api: Any, x: Draw) -> None:
    L, matrix = api.Torch.linalg, (x.plain(4, 4) + 4 * torch.eye(4)).requires_grad_()
    spd = (matrix @ matrix.mT).detach().requires_grad_()
    L.cholesky(spd)
    L.cholesky_ex(spd)
    api.Torch.cholesky(spd)
    api.Torch.cholesky_inverse(torch.linalg.cholesky(spd).detach())
    api.Torch.cholesky_solve(x(4, 2), torch.linalg.cholesky(spd).detach())
    L.inv(matrix)
    L.inv_ex(matrix)
    api.Torch.inverse(matrix)
    L.det(matrix)
    L.slogdet(matrix)
    api.Torch.logdet(spd)
    L.solve(matrix, x(4, 2))
    L.solve_triangular(matrix.triu(), x(4, 2), upper=True)
    api.Torch.triangular_solve(x(4, 2), matrix.triu().detach())
    L.lstsq(x(6, 4), x(6, 2))
    L.qr(matrix)
    api.Torch.qr(matrix)
    L.svd(matrix, full_matrices=False)
    L.svdvals(matrix)
    api.Torch.svd(matrix)
    L.eigh(spd)
    L.eigvalsh(spd)
    L.eig(matrix.detach())
    L.eigvals(matrix.detach())
    L.lu_factor(matrix.detach())
    L.lu(matrix.detach())
    L.pinv(matrix)
    L.matrix_norm(matrix)
    L.norm(matrix, 2)
    L.cond(matrix)
    L.matrix_rank(matrix.detach())
    L.matrix_power(matrix, 3)
    L.matrix_exp(matrix)
    api.Torch.matrix_exp(matrix)
    L.tensorinv(matrix.reshape(2, 2, 4), 2)
    L.cross(x(4, 3), x(4, 3))
    L.householder_product(x(4, 2), x(2))
    L.vander(x(4))
    api.Torch.pinverse(matrix)
    api.Torch.ormqr(x.plain(4, 2), x.plain(2), x.plain(4, 3))


def spectra(api: Any, x: Draw) -> None:
    S = api.Torch.fft
    S.fft(x(8))
    S.rfft(x(3, 8))
    S.irfft(x.complex(3, 5))
    S.ifft(x.complex(3, 8))
    S.fft2(x(4, 4))
    S.fftn(x(2, 4, 4), dim=(1, 2))
    S.fftshift(x(8))
    S.fftfreq(8)
    api.Torch.stft(x(64), 16, 4, window=torch.hann_window(16), return_complex=True)
    api.Torch.view_as_real(x.complex(3, 4))
    api.Torch.view_as_complex(x(3, 4, 2))
    api.Torch.complex(x(3, 4), x(3, 4))
    api.Torch.polar(x.positive(3, 4), x(3, 4))
    api.Torch.real(x.complex(3, 4))
    api.Torch.imag(x.complex(3, 4))


def recurrent(api: Any, x: Draw) -> None:
    weights = [x(16, 3), x(16, 4), x(16), x(16)]
    api.VF.lstm(x(5, 2, 3), (x(1, 2, 4), x(1, 2, 4)), weights, True, 1, 0.0, True, False, False)
    api.VF.lstm(
        x(9, 3), torch.tensor([3, 3, 2, 1]), (x(1, 3, 4), x(1, 3, 4)), weights, True, 1, 0.0, True, False
    )
    api.VF.gru(x(5, 2, 3), x(1, 2, 4), [x(12, 3), x(12, 4), x(12), x(12)], True, 1, 0.0, True, False, False)
    api.Torch.lstm_cell(x(2, 3), (x(2, 4), x(2, 4)), *weights)
    api.Torch.gru_cell(x(2, 3), x(2, 4), x(12, 3), x(12, 4), x(12), x(12))
    api.Torch.rnn_tanh_cell(x(2, 3), x(2, 4), x(4, 3), x(4, 4), x(4), x(4))


def integers(api: Any, x: Draw) -> None:
    T, M = api.Torch, api.Tensor
    for name in "add sub mul div floor_divide remainder eq lt gt maximum minimum bitwise_and bitwise_or bitwise_xor gcd".split():
        T[name](x(3, 5), x(3, 5))
    for name in "neg abs sign bitwise_not sum prod max min cumsum argmax argmin logical_not square sqrt exp sigmoid".split():
        T[name](x(3, 5))
    T.mean(x(3, 5), dtype=torch.float32)
    T.sum(x(3, 5), 1)
    T.sort(x(3, 5))
    T.argsort(x(3, 5), 1)
    T.topk(x(3, 5), 2)
    T.unique(x(3, 5))
    T.cat([x(3, 5), x(2, 5)])
    T.where(flags(3, 5), x(3, 5), x(3, 5))
    T.add(x(3, 5), torch.randn(3, 5))
    T.arange(10)
    T.zeros_like(x(3, 5))
    T.tril(x(3, 5))
    T.pow(x(3, 5), 2)
    T.matmul(x(3, 5), x(5, 4))
    M["__lshift__"](x(3, 5), 1)
    M["__rshift__"](x(3, 5), 1)
    M["__mod__"](x(3, 5), 3)
    M["__floordiv__"](x(3, 5), 2)
    M["__getitem__"](x(4, 6), (index(4, 3), slice(None)))
    M["__iadd__"](x(3, 5), 1)
    M.masked_fill(x(3, 5), flags(3, 5), 0)
    M.scatter_(x(3, 5), 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), 1)
    M.float(x(3, 5))
    M.bool(x(3, 5))
    M.to(x(3, 5), torch.float16)


def bools(api: Any, x: Draw) -> None:
    T, M = api.Torch, api.Tensor
    for name in "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor eq ne".split():
        T[name](flags(3, 5), flags(3, 5))
    for name in "logical_not bitwise_not any all sum count_nonzero nonzero argwhere cumsum".split():
        T[name](*([flags(3, 5)] if name != "cumsum" else [flags(3, 5), 1]))
    M["__and__"](flags(3, 5), flags(3, 5))
    M["__or__"](flags(3, 5), flags(3, 5))
    M["__invert__"](flags(3, 5))
    M["__getitem__"](flags(3, 5), 1)
    M.float(flags(3, 5))
    M.int(flags(3, 5))
    M.masked_fill(flags(3, 5), flags(3, 5), True)
    T.cat([flags(2, 3), flags(1, 3)])
    T.where(flags(3, 5), 1.0, 0.0)
    T.mul(flags(3, 5), torch.randn(3, 5))


def complexes(api: Any, x: Draw) -> None:
    T = api.Torch
    for name in "abs angle conj neg exp sin cos square sgn reciprocal sum mean prod tanh isnan".split():
        T[name](x(3, 5))
    for name in "add sub mul div eq".split():
        T[name](x(3, 5), x(3, 5))
    T.matmul(x(3, 5), x(5, 4))
    T.fft.fft(x(3, 8))
    T.linalg.norm(x(3, 5))
    T.linalg.inv(x(4, 4))
    T.cat([x(3, 5), x(2, 5)])
    T.view_as_real(x(3, 5))
    T.resolve_conj(x(3, 5))
    api.Tensor["__mul__"](x(3, 5), 2j)
    api.Tensor["__getitem__"](x(3, 5), 1)


class DrawWithComplex(Draw):
    def complex(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.complex64).requires_grad_()


SWEEPS: list[tuple[Callable[..., None], torch.dtype]] = [
    *(
        (family, dtype)
        for family in (activations, layers, pooling, losses, pointwise, reductions, products, shapes, casts, methods, aten)
        for dtype in FLOATS
    ),
    *((family, torch.float32) for family in (decompositions, spectra, recurrent)),
    *((integers, dtype) for dtype in INTEGERS),
    (bools, torch.bool),
    (complexes, torch.complex64),
    (complexes, torch.complex128),
]
