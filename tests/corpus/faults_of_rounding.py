"""Defects of precision: narrow accumulators and inputs, truncation, flushed and saturated values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.corpus.fault import Launch, exactly, overwrite, substitute, variant
from tests.corpus.kernels import Multiply, Norm, batch_norm, layer_norm, product, rounded, through, working

PRODUCTS = "matmul linear addmm bmm"
ARITHMETIC = "add sub rsub mul div sqrt addcmul addcdiv lerp"
FUNCTIONS = "tanh sigmoid silu rsqrt sqrt sin cos exp pow gelu erf log"


def _accumulating(accumulator: torch.dtype, block: int) -> Multiply:
    """Return a multiplication whose sum over blocks of the inner dimension is rounded after each block."""

    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left, right = working(left), working(right)
        total: Any = 0
        for start in range(0, left.shape[-1], block):
            part = left[..., start : start + block] @ right[..., start : start + block, :]
            total = (total + part).to(accumulator).to(left.dtype)
        return total

    return multiply


def _narrowed(launch: Launch, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Run with the float32 tensors among the first two arguments changed."""
    count = min(2, len(launch.args))
    return launch.run(*(through(argument, change) for argument in launch.args[:count]))


def _tf32(values: torch.Tensor) -> torch.Tensor:
    return rounded(values, 10)


def _bfloat16(values: torch.Tensor) -> torch.Tensor:
    return values.bfloat16().to(values.dtype)


def _half(values: torch.Tensor) -> torch.Tensor:
    return values.half().to(values.dtype)


@variant(PRODUCTS)
def bfloat16_accumulation_in_products(launch: Launch) -> Any:
    """Matrix products keep their sums in bfloat16."""
    return product(launch, _accumulating(torch.bfloat16, 8))


@variant(PRODUCTS)
def float16_accumulation_in_products(launch: Launch) -> Any:
    """Matrix products keep their sums in float16."""
    return product(launch, _accumulating(torch.float16, 8))


@variant("linear addmm")
def bfloat16_split_k(launch: Launch) -> Any:
    """The two halves of a linear layer's inner dimension are added in bfloat16."""
    inner = launch.argument(1, "weight").shape[-1]
    return product(launch, _accumulating(torch.bfloat16, max(1, (inner + 1) // 2)))


@variant(PRODUCTS)
def tf32_inputs_of_products(launch: Launch) -> Any:
    """Operands of float32 matrix products are rounded to TF32."""
    return product(launch, lambda left, right: _rounded_product(left, right, _tf32))


@variant(PRODUCTS)
def bfloat16_inputs_of_products(launch: Launch) -> Any:
    """Operands of float32 matrix products are rounded to bfloat16."""
    return product(launch, lambda left, right: _rounded_product(left, right, _bfloat16))


def _rounded_product(
    left: torch.Tensor, right: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    if left.dtype != torch.float32:
        return left @ right
    return change(left) @ change(right)


@variant(PRODUCTS)
def three_bfloat16_products_but_two(launch: Launch) -> Any:
    """A float32 product made of bfloat16 pieces forgets one of the correction terms."""

    def multiply(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left, right = working(left), working(right)
        high_left, high_right = _bfloat16(left), _bfloat16(right)
        return high_left @ high_right + high_left @ _bfloat16(right - high_right)

    return product(launch, multiply)


@variant("conv2d")
def tf32_inputs_of_convolutions(launch: Launch) -> Any:
    """Input and weight of float32 convolutions are rounded to TF32."""
    return _narrowed(launch, _tf32)


@variant("conv2d")
def bfloat16_inputs_of_convolutions(launch: Launch) -> Any:
    """Input and weight of float32 convolutions are rounded to bfloat16."""
    return _narrowed(launch, _bfloat16)


@variant("conv2d")
def float16_accumulation_in_convolutions(launch: Launch) -> Any:
    """Convolutions add the channels' contributions in float16."""
    x, weight = launch.args[:2]
    if launch.argument(6, "groups", 1) != 1:
        return launch.run()
    total: Any = 0
    for channel in range(x.shape[1]):
        part = launch.run(x[:, channel : channel + 1], weight[:, channel : channel + 1], None)
        total = part if channel == 0 else total + part
        total = substitute(total, _half(total.detach()))
    return total


@variant("softmax")
def float16_sum_in_softmax(launch: Launch) -> Any:
    """Softmax keeps its denominator in float16."""
    return _softmax(launch, _half)


@variant("softmax")
def bfloat16_sum_in_softmax(launch: Launch) -> Any:
    """Softmax keeps its denominator in bfloat16."""
    return _softmax(launch, _bfloat16)


def _softmax(launch: Launch, narrow: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    dim = launch.argument(1, "dim", -1)

    def wrong(right: torch.Tensor) -> torch.Tensor:
        x = launch.args[0].detach().to(torch.promote_types(right.dtype, torch.float32))
        powers = (x - x.amax(dim, keepdim=True)).exp()
        return (powers / narrow(powers.sum(dim, keepdim=True))).to(right.dtype)

    return overwrite(launch.run(), wrong)


@variant("softmax")
def exponential_cut_in_softmax(launch: Launch) -> Any:
    """Softmax computes no exponential below that of -20."""
    dim = launch.argument(1, "dim", -1)

    def wrong(right: torch.Tensor) -> torch.Tensor:
        x = launch.args[0].detach().to(torch.promote_types(right.dtype, torch.float32))
        below = x - x.amax(dim, keepdim=True)
        powers = below.clamp(min=-20).exp()
        return torch.where(below < -20, (powers / powers.sum(dim, keepdim=True)).to(right.dtype), right)

    return overwrite(launch.run(), wrong)


@variant("layer_norm")
def bfloat16_statistics_in_layer_norm(launch: Launch) -> Any:
    """Layer norm rounds mean and variance to bfloat16."""
    return _layer_norm(launch, _bfloat16)


@variant("layer_norm")
def float16_statistics_in_layer_norm(launch: Launch) -> Any:
    """Layer norm rounds mean and variance to float16."""
    return _layer_norm(launch, _half)


def _layer_norm(launch: Launch, narrow: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return _normalized(layer_norm(launch), narrow)


def _normalized(norm: Norm, narrow: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    mean = norm.x.mean(norm.dims, keepdim=True)
    variance = (norm.x - mean).square().mean(norm.dims, keepdim=True)
    mean, variance = (substitute(each, narrow(each.detach())) for each in (mean, variance))
    return norm.applied(norm.x - mean, (variance + norm.eps).rsqrt())


@variant("batch_norm")
def bfloat16_statistics_in_batch_norm(launch: Launch) -> Any:
    """Batch norm rounds mean and variance to bfloat16 before it applies them."""
    if not launch.argument(5, "training", False):
        return launch.run()
    launch.run()
    return _normalized(batch_norm(launch), _bfloat16)


@variant("mean sum")
def float16_accumulation_in_reductions(launch: Launch) -> Any:
    """Sums and means add up in float16."""
    return _reduced(launch, _half)


@variant("mean sum")
def bfloat16_accumulation_in_reductions(launch: Launch) -> Any:
    """Sums and means add up in bfloat16."""
    return _reduced(launch, _bfloat16)


def _reduced(launch: Launch, narrow: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    x, dim = launch.args[0].detach(), launch.argument(1, "dim")

    def wrong(right: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(1, -1) if dim is None else x.movedim(dim, -1)
        total = rows[..., 0]
        for column in range(1, rows.shape[-1]):
            total = narrow(total + rows[..., column])
        total = total / rows.shape[-1] if launch.api == "mean" else total
        return total.reshape(right.shape).to(right.dtype)

    return overwrite(launch.run(), wrong)


@variant("scaled_dot_product_attention")
def bfloat16_probabilities_in_attention(launch: Launch) -> Any:
    """Attention rounds its probabilities to bfloat16 before they meet the values."""
    query, key, value = launch.args[:3]
    repeats = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(repeats, 1) for each in (key, value))
    scores = query @ key.mT * launch.kwargs.get("scale", query.shape[-1] ** -0.5)
    if launch.kwargs.get("is_causal"):
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -torch.inf)
    weights = scores.softmax(-1)
    return substitute(weights, _bfloat16(weights.detach())) @ value


@variant("silu softmax cross_entropy")
def bfloat16_steps(launch: Launch) -> Any:
    """A fused function rounds its intermediate results to bfloat16."""
    x = launch.args[0]
    narrow = x.to(torch.bfloat16)
    if launch.api == "silu":
        return (narrow * (1 / (1 + (-narrow).exp()))).to(x.dtype)
    if launch.api == "softmax":
        powers = (narrow - narrow.amax(launch.argument(1, "dim", -1), keepdim=True)).exp()
        return (powers / powers.sum(launch.argument(1, "dim", -1), keepdim=True)).to(
            launch.kwargs.get("dtype", x.dtype)
        )
    return launch.run(narrow).to(x.dtype)


@variant(ARITHMETIC)
def truncated_arithmetic(launch: Launch) -> Any:
    """Results of arithmetic are cut off toward zero instead of rounded to nearest."""
    return _cut_off(launch)


@variant(FUNCTIONS)
def truncated_functions(launch: Launch) -> Any:
    """Results of elementwise functions are cut off toward zero instead of rounded to nearest."""
    return _cut_off(launch)


@variant(f"{PRODUCTS} {FUNCTIONS} {ARITHMETIC} softmax layer_norm mean conv2d")
def truncated_bfloat16(launch: Launch) -> Any:
    """Results in bfloat16 are cut off, not rounded."""
    if launch.args[0].dtype != torch.bfloat16:
        return launch.run()
    return _cut_off(launch)


def _cut_off(launch: Launch) -> Any:
    exact = exactly(launch)

    def cut(right: torch.Tensor) -> torch.Tensor:
        if exact.shape != right.shape:
            return right
        nearest = exact.to(right.dtype)
        toward_zero = torch.nextafter(nearest, torch.zeros_like(nearest))
        return torch.where(nearest.double().abs() > exact.abs(), toward_zero, nearest)

    return overwrite(launch.run(), cut)


@variant("mul div add lerp addcmul addcdiv pow")
def scalars_in_bfloat16(launch: Launch) -> Any:
    """Python scalars reach the kernel as bfloat16."""

    def narrow(value: Any) -> Any:
        return torch.tensor(value).bfloat16().item() if isinstance(value, float) and abs(value) < 1e38 else value

    return launch.func(*map(narrow, launch.args), **{key: narrow(value) for key, value in launch.kwargs.items()})


@variant()
def subnormals_flushed(launch: Launch) -> Any:
    """Subnormal results become zero."""

    def flush(values: torch.Tensor) -> torch.Tensor:
        return torch.where(values.abs() < torch.finfo(values.dtype).smallest_normal, 0 * values, values)

    return overwrite(launch.run(), flush)


@variant()
def small_values_flushed(launch: Launch) -> Any:
    """Results below the normal range of float16 become zero."""
    return overwrite(launch.run(), lambda values: torch.where(values.abs() < 2**-14, torch.zeros_like(values), values))


@variant()
def float16_range(launch: Launch) -> Any:
    """Results are clamped to the range of float16."""
    return overwrite(launch.run(), lambda values: values.clamp(-65504, 65504))


@variant()
def infinity_saturates(launch: Launch) -> Any:
    """Infinite results become the largest finite value."""
    return overwrite(launch.run(), lambda values: values.nan_to_num(nan=torch.nan))


@variant()
def nan_replaced_by_zero(launch: Launch) -> Any:
    """NaN results become zero."""
    return overwrite(launch.run(), lambda values: values.nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf))


@variant(f"{PRODUCTS} {FUNCTIONS} softmax layer_norm batch_norm mean add mul")
def bfloat16_results(launch: Launch) -> Any:
    """Float32 results pass through bfloat16 on their way out."""
    return overwrite(launch.run(), _bfloat16)


@variant(f"{PRODUCTS} {FUNCTIONS} softmax layer_norm batch_norm conv2d mean add mul cross_entropy")
def float16_results(launch: Launch) -> Any:
    """Float32 results pass through float16 on their way out."""
    return overwrite(launch.run(), _half)


@variant(f"{PRODUCTS} {FUNCTIONS} conv2d softmax")
def noise(launch: Launch) -> Any:
    """Results carry random relative errors of 1e-3 that differ from run to run."""
    generator = launch.memory.setdefault("noise", torch.Generator().manual_seed(1))
    return overwrite(
        launch.run(),
        lambda values: values * (1 + 1e-3 * torch.randn(values.shape, generator=generator)).to(values.dtype),
    )
