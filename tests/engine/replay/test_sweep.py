"""Real APIs, recorded on a healthy CPU and replayed there: nearly all get a verdict and none an alarm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
FLOAT8 = tuple(getattr(torch, name) for name in dir(torch) if name.startswith("float8") and "e8m0" not in name)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)

ACTIVATIONS = """relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid hardshrink softshrink
    softplus softsign tanhshrink logsigmoid""".split()
FUNCTIONS = """abs neg exp exp2 expm1 sin cos tan sinh cosh tanh asinh atan erf erfc sign sgn ceil floor round trunc
    frac square sigmoid relu deg2rad rad2deg logit sinc nan_to_num isnan isinf isfinite signbit""".split()
OPERATORS = """__add__ __sub__ __mul__ __truediv__ __radd__ __rsub__ __rmul__ __rdiv__
    __eq__ __ne__ __lt__ __gt__""".split()
INTEGER_FUNCTIONS = """add sub mul div floor_divide remainder eq lt gt maximum minimum
    bitwise_and bitwise_or bitwise_xor gcd""".split()


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

    def complex(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.complex64).requires_grad_()

    def plain(self, *shape: int) -> torch.Tensor:
        return self(*shape).detach()

    def _wanting_gradients(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.dtype).requires_grad_()


def index(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape)


def flags(*shape: int) -> torch.Tensor:
    return torch.rand(shape) < 0.5


def activations(api: Any, x: Draw) -> None:
    nn = api.Functional
    for name in ACTIVATIONS:
        nn[name](x(4, 9))
    nn.relu(x(4, 9) * 1, inplace=True)
    nn.elu(x(4, 9) * 1, 1.0, True)
    nn.silu(x(4, 9) * 1, inplace=True)
    nn.hardtanh(x(4, 9), -0.5, 0.5)
    nn.threshold(x(4, 9), 0.1, 20.0)
    nn.softmax(x(4, 9), dim=-1)
    nn.softmax(x(4, 9), dim=1, dtype=torch.float32)
    nn.log_softmax(x(4, 9), 1)
    nn.softmin(x(4, 9), dim=0)
    nn.glu(x(4, 8), -1)
    nn.prelu(x(2, 3, 4), x(3))
    nn.gelu(x(4, 9), approximate="tanh")
    nn.normalize(x(4, 9), dim=1)
    api.Torch.softmax(x(4, 9), -1)
    api.Torch.relu_(x(4, 9) * 1)
    api.Torch.sigmoid(x(4, 9))


def layers(api: Any, x: Draw) -> None:
    nn = api.Functional
    nn.linear(x(4, 8), x(5, 8), x(5))
    nn.linear(x(2, 4, 8), x(5, 8))
    nn.bilinear(x(4, 3), x(4, 5), x(6, 3, 5), x(6))
    nn.conv1d(x(2, 3, 10), x(4, 3, 3), x(4), 1, 1)
    nn.conv2d(x(2, 3, 8, 8), x(4, 3, 3, 3), x(4), (1, 1), (1, 1), (1, 1), 1)
    nn.conv2d(x(1, 4, 6, 6), x(4, 1, 3, 3), None, padding="same", groups=4)
    nn.conv3d(x(1, 2, 4, 4, 4), x(3, 2, 2, 2, 2))
    nn.conv_transpose1d(x(1, 3, 5), x(3, 2, 3))
    nn.conv_transpose2d(x(1, 3, 5, 5), x(3, 2, 3, 3), stride=2)
    nn.layer_norm(x(4, 6, 8), (8,), x(8), x(8), 1e-5)
    nn.layer_norm(x(4, 6, 8), (6, 8))
    nn.rms_norm(x(4, 8), (8,), x(8), 1e-6)
    nn.group_norm(x(2, 6, 5), 3, x(6), x(6))
    nn.batch_norm(x(4, 3, 5), x.plain(3), x.positive(3).detach(), x(3), x(3), True, 0.1, 1e-5)
    nn.batch_norm(x(4, 3, 5), x.plain(3), x.positive(3).detach(), weight=x(3), bias=x(3), training=False)
    nn.instance_norm(x(2, 3, 7), x.plain(3), x.positive(3).detach(), x(3), x(3), True, 0.1, 1e-5)
    nn.local_response_norm(x(2, 6, 5), 3)
    nn.embedding(index(10, 3, 4), x(10, 6), padding_idx=1)
    nn.embedding_bag(index(10, 12), x(10, 6), torch.tensor([0, 4, 9]))
    nn.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 6, 8), x(2, 2, 6, 8))
    nn.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8), is_causal=True)
    nn.scaled_dot_product_attention(x(2, 2, 5, 8), x(2, 2, 5, 8), x(2, 2, 5, 8), flags(5, 5) | torch.eye(5).bool())


def pooling(api: Any, x: Draw) -> None:
    nn = api.Functional
    nn.max_pool1d(x(2, 3, 9), 3)
    nn.max_pool2d(x(2, 3, 9, 9), 3, 2, 1)
    nn.max_pool2d(x(2, 3, 9, 9), (2, 2), return_indices=True)
    nn.max_pool3d(x(1, 2, 4, 4, 4), 2)
    nn.avg_pool1d(x(2, 3, 9), 3)
    nn.avg_pool2d(x(2, 3, 8, 8), 2)
    if x.dtype is torch.float32:  # torch's CPU has it in no other
        nn.avg_pool3d(x(1, 2, 4, 4, 4), 2)
    nn.lp_pool2d(x.positive(2, 3, 8, 8), 2.0, 2)
    nn.adaptive_avg_pool1d(x(2, 3, 9), 4)
    nn.adaptive_avg_pool2d(x(2, 3, 9, 9), (3, 3))
    nn.adaptive_max_pool2d(x(2, 3, 9, 9), (3, 3))
    nn.max_unpool2d(x(2, 3, 4, 4), torch.arange(0, 64, 4).expand(2, 3, 16).reshape(2, 3, 4, 4), 2)
    nn.interpolate(x(1, 3, 4, 4), scale_factor=2, mode="nearest")
    nn.interpolate(x(1, 3, 4, 4), (7, 7), mode="bilinear", align_corners=False)
    nn.interpolate(x(1, 3, 4, 4), [8, 8], None, "bicubic", True)
    nn.grid_sample(x(1, 3, 5, 5), (x.unit(1, 4, 4, 2) * 2 - 1).detach(), align_corners=True)
    nn.affine_grid(x(1, 2, 3), (1, 3, 4, 4), align_corners=False)
    nn.pad(x(2, 3, 4, 4), (1, 1, 1, 1), mode="reflect")
    nn.pad(x(2, 3, 4), (1, 2), "constant", 1.0)
    nn.pixel_shuffle(x(1, 8, 3, 3), 2)
    nn.unfold(x(1, 3, 6, 6), (2, 2))
    nn.fold(x(1, 12, 9), (4, 4), (2, 2))


def losses(api: Any, x: Draw) -> None:
    nn = api.Functional
    nn.cross_entropy(x(6, 5), index(5, 6))
    nn.cross_entropy(x(6, 5), torch.tensor([0, -100, 3, 4, -100, 1]), ignore_index=-100, label_smoothing=0.1)
    nn.cross_entropy(x(6, 5), index(5, 6), x.positive(5).detach(), None, -100, None, "sum")
    nn.cross_entropy(x(2, 5, 4), index(5, 2, 4), reduction="none")
    nn.cross_entropy(x(6, 5), x(6, 5).softmax(1).detach())
    nn.nll_loss(x(6, 5), index(5, 6))
    nn.mse_loss(x(4, 6), x(4, 6))
    nn.l1_loss(x(4, 6), x(4, 6))
    nn.smooth_l1_loss(x(4, 6), x(4, 6), reduction="sum")
    nn.huber_loss(x(4, 6), x(4, 6))
    nn.kl_div(x(4, 6), x.unit(4, 6), reduction="batchmean")
    nn.binary_cross_entropy(x.unit(4, 6), x.unit(4, 6).detach())
    nn.binary_cross_entropy_with_logits(x(4, 6), x.unit(4, 6).detach())
    nn.cosine_similarity(x(4, 6), x(4, 6), dim=1)
    nn.cosine_embedding_loss(x(4, 6), x(4, 6), torch.tensor([1, -1, 1, -1]))
    nn.margin_ranking_loss(x(6), x(6), torch.tensor([1, -1, 1, -1, 1, 1]))
    nn.hinge_embedding_loss(x(6), torch.tensor([1, -1, 1, -1, 1, 1]))
    nn.triplet_margin_loss(x(4, 6), x(4, 6), x(4, 6))
    if x.dtype is torch.float32:  # torch's CPU has it in no other
        nn.multi_margin_loss(x(4, 6), index(6, 4))
    nn.soft_margin_loss(x(6), torch.tensor([1.0, -1, 1, -1, 1, 1]).to(x.dtype))
    nn.poisson_nll_loss(x(4, 6), x.positive(4, 6).detach())
    nn.gaussian_nll_loss(x(4, 6), x(4, 6).detach(), x.positive(4, 6))
    nn.ctc_loss(
        torch.randn(9, 2, 5).log_softmax(-1).requires_grad_(),
        index(4, 2, 3) + 1,
        torch.tensor([9, 9]),
        torch.tensor([3, 2]),
    )
    nn.one_hot(index(5, 6), 5)
    nn.pairwise_distance(x(4, 6), x(4, 6))


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
    api.Torch.trace(x(4, 4))


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


def shapes(api: Any, x: Draw) -> None:
    op, method = api.Torch, api.Tensor
    op.cat([x(2, 3), x(4, 3)], 0)
    op.cat((x(2, 3), x(2, 5)), dim=1)
    op.stack([x(2, 3), x(2, 3)], dim=1)
    for name in "hstack vstack dstack column_stack".split():
        op[name]([x(2, 3), x(2, 3)])
    op.block_diag(x(2, 3), x(3, 2))
    op.meshgrid(x(3), x(4), indexing="ij")
    op.broadcast_tensors(x(3, 1), x(4))
    op.split(x(6, 4), 2)
    op.split(x(6, 4), [2, 4], dim=0)
    op.chunk(x(6, 4), 3)
    op.tensor_split(x(6, 4), (1, 4))
    op.unbind(x(3, 4))
    op.flatten(x(2, 3, 4), 1)
    op.reshape(x(2, 6), (3, 4))
    op.transpose(x(2, 6), 0, 1)
    op.permute(x(2, 3, 4), (2, 0, 1))
    op.squeeze(x(2, 1, 3))
    op.unsqueeze(x(2, 3), 1)
    op.flip(x(2, 3), [1])
    op.roll(x(2, 6), 2, 1)
    op.rot90(x(3, 4))
    op.tril(x(4, 4), diagonal=1)
    op.triu(x(4, 4))
    op.diag(x(4))
    op.diagonal(x(4, 4))
    op.tile(x(2, 3), (2, 2))
    op.repeat_interleave(x(2, 3), 2, dim=1)
    op.repeat_interleave(x(3, 2), torch.tensor([1, 2, 1]), dim=0)
    op.movedim(x(2, 3, 4), 0, 2)
    op.narrow(x(5, 3), 0, 1, 3)
    op.select(x(5, 3), 0, 2)
    op.atleast_2d(x(3))
    op.full_like(x.plain(3, 4), 0.25)
    op.zeros_like(x.plain(3, 4), dtype=torch.float32)
    op.ones_like(x.plain(3, 4))
    op.arange(0, 5, 1, dtype=x.dtype)
    op.linspace(0, 1, 5, dtype=x.dtype)
    op.combinations(x(4))
    op.cartesian_prod(x(2), x(3))
    method.view(x(2, 6), 3, 4)
    method.view(x(2, 6), (3, 4))
    method.reshape(x(2, 6), -1)
    method.expand(x(1, 3), 4, 3)
    method.expand_as(x(1, 3), x(4, 3))
    method.repeat(x(2, 3), 2, 1)
    method.permute(x(2, 3, 4), 0, 2, 1)
    method.transpose(x(2, 6), -1, -2)
    method.T(x(2, 3))
    method.mT(x(2, 3))
    method.contiguous(x(2, 3))
    method.contiguous(x(2, 3, 4, 4), memory_format=torch.channels_last)
    method.unfold(x(10), 0, 3, 2)
    method.new_zeros(x(2, 3), (3, 4))
    method.new_full(x(2, 3), (3, 4), 1.5)
    method.size(x(2, 3))
    method.clone(x(2, 3))
    method.detach(x(2, 3))
    method.unflatten(x(2, 6), 1, (2, 3))
    method.tolist(x.plain(3))
    method.item(x.plain(1))


def casts(api: Any, x: Draw) -> None:
    method = api.Tensor
    for name in "float half bfloat16 double int long bool".split():
        method[name](x(3, 5))
    method.to(x(3, 5), torch.float32)
    method.to(x(3, 5), dtype=torch.float16)
    method.to(x(3, 5), torch.device("cpu"))
    method.to(x(3, 5), device=torch.device("cpu"), dtype=torch.bfloat16)
    method.to(x(3, 5), x(1).double())
    method.type(x(3, 5), torch.float64)
    method.type_as(x(3, 5), torch.zeros(1, dtype=torch.float16))
    method.view(x.plain(4, 8), dtype=torch.uint8)
    method.view(x.plain(4, 8), torch.int32 if x.dtype is torch.float32 else torch.int16)


def methods(api: Any, x: Draw) -> None:
    method = api.Tensor
    for name in OPERATORS:
        method[name](x(3, 5), x(3, 5))
    method["__add__"](x(3, 5), 2.5)
    method["__pow__"](x(3, 5), 2)
    method["__neg__"](x(3, 5))
    method["__matmul__"](x(3, 5), x(5, 4))
    method["__iadd__"](x(3, 5) * 1, x(3, 5))
    method["__imul__"](x(3, 5) * 1, 0.5)
    method["__itruediv__"](x(3, 5) * 1, 3.0)
    method["__getitem__"](x(4, 6), 1)
    method["__getitem__"](x(4, 6), (slice(1, 3), None, ...))
    method["__getitem__"](x(4, 6), index(4, 3))
    method["__getitem__"](x(4, 6), (index(4, 3), index(6, 3)))
    method["__getitem__"](x(4, 6), (slice(None), index(6, 3)))
    method["__getitem__"](x(4, 6), flags(4, 6))
    method["__getitem__"](x(4, 6), (flags(4), 2))
    method["__getitem__"](x(4, 6), (..., index(6, 2)))
    method["__getitem__"](x(4, 6), [0, 2])
    method["__setitem__"](x(4, 6) * 1, (slice(1, 3), slice(None)), x(2, 6))
    method["__setitem__"](x(4, 6) * 1, flags(4, 6), 1.0)
    method["__setitem__"](x(4, 6) * 1, index(4, 1), x(6))
    for name in "add_ sub_ mul_ copy_".split():
        method[name](x(3, 5) * 1, x(3, 5))
    method.div_(x(3, 5) * 1, x.positive(3, 5))
    for name in "exp_ tanh_ sigmoid_ relu_ neg_ abs_ zero_".split():
        method[name](x(3, 5) * 1)
    method.fill_(x(3, 5) * 1, 2.0)
    method.clamp_(x(3, 5) * 1, -1, 1)
    method.addcmul_(x.plain(3, 5), x.plain(3, 5), x.plain(3, 5), value=0.1)
    method.addcdiv_(x.plain(3, 5), x.plain(3, 5), x.positive(3, 5).detach(), value=-0.1)
    method.lerp_(x.plain(3, 5), x.plain(3, 5), 0.1)
    method.masked_fill(x(3, 5), flags(3, 5), -1e4)
    method.masked_fill_(x(3, 5) * 1, flags(5), 0)
    method.masked_select(x(3, 5), flags(3, 5))
    method.masked_scatter(x(3, 5), flags(3, 5), x(15))
    method.gather(x(3, 5), 1, index(5, 3, 2))
    method.scatter(x(3, 5), 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), x(3, 2))
    method.scatter_(x(3, 5) * 1, 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), 1.0)
    method.scatter_add(x(3, 5), 0, index(3, 2, 5), x(2, 5))
    method.scatter_add_(x(3, 5) * 1, dim=0, index=index(3, 2, 5), src=x(2, 5))
    method.scatter_reduce(x(3, 5), 0, index(3, 2, 5), x(2, 5), reduce="amax")
    method.index_select(x(3, 5), 1, index(5, 4))
    method.index_add(x(3, 5), 0, index(3, 2), x(2, 5))
    method.index_add_(x(3, 5) * 1, 0, index(3, 2), x(2, 5))
    method.index_copy(x(3, 5), 0, torch.tensor([2, 0]), x(2, 5))
    method.index_fill(x(3, 5), 1, index(5, 2), 0.5)
    method.index_put(x(3, 5), (torch.tensor([0, 2]), torch.tensor([1, 3])), x(2))
    method.index_put_(x(3, 5) * 1, (torch.tensor([0, 2]),), x(2, 5), accumulate=True)
    method.take(x(3, 5), index(15, 4))
    method.take_along_dim(x(3, 5), index(5, 3, 2), 1)
    method.put_(x(3, 5) * 1, torch.tensor([0, 7, 3]), x(3))
    method.nonzero(x.plain(3, 5))
    method.sum(x(3, 5), -1, keepdim=True)
    method.mean(x(3, 5), (0, 1))
    method.max(x(3, 5), dim=-1)
    method.norm(x(3, 5))
    method.softmax(x(3, 5), dim=-1)
    method.cumsum(x(3, 5), dim=0)
    method.fill_diagonal_(x.plain(4, 4), 3.0)
    method.tril_(x.plain(4, 4))
    method.where(x(3, 5), flags(3, 5), x(3, 5))
    method.is_nonzero(x.plain(1))
    method.t(x(3, 5))
    method.numel(x(3, 5))
    method.dim(x(3, 5))


def aten(api: Any, x: Draw) -> None:
    at = api.Aten
    at.add.Tensor(x(3, 5), x(3, 5))
    at.add_.Tensor(x(3, 5) * 1, x(3, 5))
    at.mul(x(3, 5), x(3, 5))
    at._softmax.default(x(3, 5), -1, False)
    at._log_softmax.default(x(3, 5), -1, False)
    at.addmm.default(x(4), x(3, 5), x(5, 4))
    at.bmm.default(x(2, 3, 4), x(2, 4, 5))
    at.native_layer_norm.default(x(3, 5), [5], x(5), x(5), 1e-5)
    at.native_group_norm.default(x(2, 6, 4), x(6), x(6), 2, 6, 4, 3, 1e-5)
    at.native_batch_norm.default(x(4, 3, 5), x(3), x(3), x.plain(3), x.positive(3).detach(), True, 0.1, 1e-5)
    at.convolution.default(x(1, 3, 6, 6), x(4, 3, 3, 3), x(4), [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    at.max_pool2d_with_indices.default(x(1, 3, 6, 6), [2, 2], [2, 2])
    at.avg_pool2d.default(x(1, 3, 6, 6), [2, 2])
    at.embedding.default(x(10, 4), index(10, 3))
    at.index.Tensor(x(4, 6), [index(4, 3), index(6, 3)])
    at.index_select.default(x(4, 6), 0, index(4, 3))
    at.gather.default(x(4, 6), 1, index(6, 4, 2))
    at.nll_loss_forward.default(x(6, 5), index(5, 6), None, 1, -100)
    at.sum.dim_IntList(x(3, 5), [1], True)
    at.mean.dim(x(3, 5), [-1])
    at.topk.default(x(3, 5), 2)
    at.sort.default(x(3, 5), 1)
    at.argmax.default(x(3, 5), 1)
    at.cat.default([x(3, 5), x(2, 5)])
    at.stack.default([x(3, 5), x(3, 5)])
    at.split.Tensor(x(6, 4), 2)
    at.view.default(x(3, 4), [4, 3])
    at._to_copy.default(x(3, 4), dtype=torch.float32)
    at.where.self(flags(3, 4), x(3, 4), x(3, 4))
    at.gelu.default(x(3, 4))
    at.gelu_backward.default(x.plain(3, 4), x.plain(3, 4))
    at.threshold_backward.default(x.plain(3, 4), x.plain(3, 4), 0)
    if x.dtype is torch.float32:
        mean, rstd = x.plain(3, 1), x.positive(3, 1).detach()
        at.native_layer_norm_backward.default(
            x.plain(3, 5), x.plain(3, 5), [5], mean, rstd, x.plain(5), x.plain(5), [True, True, True]
        )
    at.clamp.default(x(3, 4), -1, 1)
    at.pow.Tensor_Scalar(x(3, 4), 3)
    at.linear.default(x(3, 4), x(5, 4))


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


def recurrent(api: Any, x: Draw) -> None:
    weights = [x(16, 3), x(16, 4), x(16), x(16)]
    api.VF.lstm(x(5, 2, 3), (x(1, 2, 4), x(1, 2, 4)), weights, True, 1, 0.0, True, False, False)
    api.VF.lstm(x(9, 3), torch.tensor([3, 3, 2, 1]), (x(1, 3, 4), x(1, 3, 4)), weights, True, 1, 0.0, True, False)
    api.VF.gru(x(5, 2, 3), x(1, 2, 4), [x(12, 3), x(12, 4), x(12), x(12)], True, 1, 0.0, True, False, False)
    api.Torch.lstm_cell(x(2, 3), (x(2, 4), x(2, 4)), *weights)
    api.Torch.gru_cell(x(2, 3), x(2, 4), x(12, 3), x(12, 4), x(12), x(12))
    api.Torch.rnn_tanh_cell(x(2, 3), x(2, 4), x(4, 3), x(4, 4), x(4), x(4))


def integers(api: Any, x: Draw) -> None:
    op, method = api.Torch, api.Tensor
    for name in INTEGER_FUNCTIONS:
        op[name](x(3, 5), x(3, 5))
    for name in "neg abs sign bitwise_not sum prod max min argmax argmin logical_not square sqrt exp sigmoid".split():
        op[name](x(3, 5))
    op.cumsum(x(3, 5), 0)
    op.mean(x(3, 5), dtype=torch.float32)
    op.sum(x(3, 5), 1)
    op.sort(x(3, 5))
    op.argsort(x(3, 5), 1)
    op.topk(x(3, 5), 2)
    op.unique(x(3, 5))
    op.cat([x(3, 5), x(2, 5)])
    op.where(flags(3, 5), x(3, 5), x(3, 5))
    op.add(x(3, 5), torch.randn(3, 5))
    op.arange(10)
    op.zeros_like(x(3, 5))
    op.tril(x(3, 5))
    op.pow(x(3, 5), 2)
    op.matmul(x(3, 5), x(5, 4))
    method["__lshift__"](x(3, 5), 1)
    method["__rshift__"](x(3, 5), 1)
    method["__mod__"](x(3, 5), 3)
    method["__floordiv__"](x(3, 5), 2)
    method["__getitem__"](x(4, 6), (index(4, 3), slice(None)))
    method["__iadd__"](x(3, 5), 1)
    method.masked_fill(x(3, 5), flags(3, 5), 0)
    method.scatter_(x(3, 5), 1, torch.tensor([[0, 2], [1, 3], [4, 0]]), 1)
    method.float(x(3, 5))
    method.bool(x(3, 5))
    method.to(x(3, 5), torch.float16)


def bools(api: Any, x: Draw) -> None:
    op, method = api.Torch, api.Tensor
    for name in "logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor eq ne".split():
        op[name](flags(3, 5), flags(3, 5))
    for name in "logical_not bitwise_not any all sum count_nonzero nonzero argwhere cumsum".split():
        op[name](*([flags(3, 5)] if name != "cumsum" else [flags(3, 5), 1]))
    method["__and__"](flags(3, 5), flags(3, 5))
    method["__or__"](flags(3, 5), flags(3, 5))
    method["__invert__"](flags(3, 5))
    method["__getitem__"](flags(3, 5), 1)
    method.float(flags(3, 5))
    method.int(flags(3, 5))
    method.masked_fill(flags(3, 5), flags(3, 5), True)
    op.cat([flags(2, 3), flags(1, 3)])
    op.where(flags(3, 5), 1.0, 0.0)
    op.mul(flags(3, 5), torch.randn(3, 5))


def complexes(api: Any, x: Draw) -> None:
    op = api.Torch
    for name in "abs angle conj neg exp sin cos square sgn reciprocal sum mean prod tanh isnan".split():
        op[name](x(3, 5))
    for name in "add sub mul div eq".split():
        op[name](x(3, 5), x(3, 5))
    op.matmul(x(3, 5), x(5, 4))
    op.fft.fft(x(3, 8))
    op.linalg.norm(x(3, 5))
    op.linalg.inv(x(4, 4))
    op.cat([x(3, 5), x(2, 5)])
    op.view_as_real(x(3, 5))
    op.resolve_conj(x(3, 5))
    api.Tensor["__mul__"](x(3, 5), 2.0)
    api.Tensor["__getitem__"](x(3, 5), 1)


def narrow_floats(api: Any, x: Draw) -> None:
    method = api.Tensor
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        method.to(x.plain(3, 5), dtype=dtype)
    method.to(torch.randn(3, 5), dtype=x.dtype)
    method.clone(x.plain(3, 5))
    method.view(x.plain(3, 6), 2, 9)
    method["__getitem__"](x.plain(3, 5), 1)
    api.Torch.cat([x.plain(2, 3), x.plain(1, 3)])
    api.Torch.transpose(x.plain(2, 3), 0, 1)
    api.Torch.zeros_like(x.plain(2, 3))


def wide_integers(api: Any, x: Draw) -> None:
    method = api.Tensor
    method.to(x(3, 5), dtype=torch.float32)
    method.to(x(3, 5), dtype=torch.int64)
    method.clone(x(3, 5))
    method["__getitem__"](x(3, 5), slice(1, None))
    api.Torch.cat([x(2, 3), x(1, 3)])
    api.Torch.eq(x(3, 5), x(3, 5))
    api.Torch.full_like(x(3, 5), 7)


def half_complexes(api: Any, x: Draw) -> None:
    api.Torch.abs(x.plain(3, 5))
    api.Torch.real(x.plain(3, 5))
    api.Torch.view_as_real(x.plain(3, 5))
    api.Torch.mul(x.plain(3, 5), x.plain(3, 5))
    api.Tensor.clone(x.plain(3, 5))
    api.Tensor.to(x.plain(3, 5), dtype=torch.complex64)


def no_elements(api: Any, x: Draw) -> None:
    api.Torch.add(x.plain(0, 3), x.plain(0, 3))
    api.Torch.sum(x.plain(0, 3))
    api.Torch.cat([x.plain(0, 3), x.plain(2, 3)])
    api.Torch.matmul(x.plain(0, 3), x.plain(3, 4))
    api.Functional.relu(x.plain(0))
    api.Tensor["__getitem__"](x.plain(0, 3), (slice(None), 1))
    api.Torch.exp(x.plain())
    api.Torch.add(x.plain(), 1)


SWEEPS: list[tuple[Callable[..., None], torch.dtype]] = [
    *(
        (family, dtype)
        for family in (activations, layers, pooling, losses, pointwise, reductions, products, shapes, casts, methods)
        for dtype in FLOATS
    ),
    *((family, dtype) for family in (aten, no_elements) for dtype in FLOATS),
    *((family, torch.float32) for family in (decompositions, spectra, recurrent)),
    *((integers, dtype) for dtype in INTEGERS),
    (bools, torch.bool),
    (complexes, torch.complex64),
    (complexes, torch.complex128),
    (half_complexes, torch.complex32),
    *((narrow_floats, dtype) for dtype in FLOAT8),
    *((wide_integers, dtype) for dtype in (torch.uint16, torch.uint32, torch.uint64)),
]

# What a CPU cannot do for any recording: kernels that torch does not have.
SKIPPED_SHARE = 0.01


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("family", "dtype"), SWEEPS, ids=lambda value: getattr(value, "__name__", str(value)[6:]))
def test_a_healthy_cpu_gets_verdicts_and_no_alarm(
    recorder: Any, check: Any, family: Callable[..., None], dtype: torch.dtype, seed: int
) -> None:
    family(recorder, Draw(dtype))
    judged, skips, alarms = 0, Counter[str](), []
    for call in recorder.calls:
        result = check(call, seed=seed)
        for direction in filter(None, (result.forward, result.backward)):
            judged += 1
            if direction.verdict.outcome == "skip":
                skips[f"{direction.record}: {direction.verdict.reason}"] += 1
            elif direction.verdict.outcome != "pass":
                alarms.append(f"{direction.record}: {direction.verdict.outcome}: {direction.verdict.reason}")
    assert not alarms
    assert skips.total() <= SKIPPED_SHARE * judged, "\n".join(skips)


@pytest.mark.parametrize(("family", "dtype"), [sweep for sweep in SWEEPS if sweep[1] is torch.float32])
def test_one_wrong_element_is_found_in_any_result(
    recorder: Any, check: Any, device_that: Any, family: Callable[..., None], dtype: torch.dtype
) -> None:
    spoilt: list[str] = []

    def spoil(func: Any, args: Any, kwargs: Any) -> Any:
        return torch.utils._pytree.tree_map_only(torch.Tensor, one_wrong_element, func(*args, **kwargs))

    def one_wrong_element(output: torch.Tensor) -> torch.Tensor:
        if not output.is_floating_point() or output.numel() == 0:
            return output
        spoilt.append("an output")
        wrong = output.detach().clone(memory_format=torch.contiguous_format)
        wrong.view(-1)[output.numel() // 2] += max(wrong.abs().max().item(), 1.0) * 0.06
        return wrong

    family(recorder, Draw(dtype))
    missed = []
    for call in recorder.calls:
        spoilt.clear()
        verdict = check(call, device=device_that(spoil)).forward.verdict
        if spoilt and verdict.outcome != "fail":
            missed.append(f"{call.name}: {verdict.outcome}: {verdict.reason}")
    assert not missed
