"""Correct devices whose functions, norms and variances are computed another way: 16 bits need not be rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tests.corpus.fault import Launch, exactly, overwrite, plain_name, variant
from tests.corpus.kernels import Norm, batch_norm, layer_norm, working


def _half(values: torch.Tensor) -> torch.Tensor:
    """Round float32 values to float16, as a step of float16 arithmetic does."""
    return values.half().float()


def _float16_sigmoid(x: torch.Tensor) -> torch.Tensor:
    return _half(1 / _half(1 + _half((-x).exp())))


_FLOAT16_STEPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sigmoid": _float16_sigmoid,
    "silu": lambda x: x * _float16_sigmoid(x),
    "softplus": lambda x: _half(1 + _half(x.exp())).log(),
    "rsqrt": lambda x: 1 / _half(x.sqrt()),
    "gelu": lambda x: _half(0.5 * x) * _half(1 + _half(torch.erf(_half(x * _half(torch.tensor(0.5**0.5)))))),
    "log10": lambda x: _half(x.log()) * _half(torch.tensor(1 / math.log(10))),
}


@variant(" ".join(_FLOAT16_STEPS))
def float16_steps(launch: Launch) -> Any:
    """Functions of float16 values take several steps, each rounded to float16."""
    x = launch.args[0].detach()
    if x.dtype != torch.float16 or launch.kwargs.get("approximate") == "tanh":
        return launch.run()
    steps = _FLOAT16_STEPS[plain_name(launch.api)]
    return overwrite(launch.run(), lambda values: steps(x.float()).to(values.dtype))


@variant("exp tanh sigmoid silu gelu sin cos log rsqrt pow")
def faithful_float16(launch: Launch) -> Any:
    """Functions of float16 values are rounded to either neighbour of the exact result, as its bits happen to say."""
    x = launch.args[0].detach()
    if x.dtype != torch.float16:
        return launch.run()
    exact = exactly(launch)

    def either(values: torch.Tensor) -> torch.Tensor:
        nearest = exact.to(values.dtype)
        beyond = torch.where(nearest.double() < exact, math.inf, -math.inf).to(values.dtype)
        chosen = (x.view(torch.int16).int() * 40503 >> 7) % 2 == 0
        moved = torch.nextafter(nearest, beyond)
        return torch.where(chosen & (nearest.double() != exact) & moved.isfinite(), moved, nearest)

    return overwrite(launch.run(), either)


def _polynomial(x: torch.Tensor, *coefficients: float) -> torch.Tensor:
    """Evaluate a polynomial, the highest power first, with one rounding to float32 per multiplication and addition."""
    total = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = (total.double() * x.double() + coefficient).float()
    return total


def _reduced(x: torch.Tensor, steps: int, degree: int) -> torch.Tensor:
    """Return exp(x) in float32 from powers of 2^(1 / steps) and a polynomial between them.

    The argument is reduced in float64, as two words of float32 do.
    """
    x = x.double().clamp(-120, 120)
    whole = (x * (steps / math.log(2))).round() / steps
    part = (x - whole * math.log(2)).float()
    return torch.exp2(whole).float() * _polynomial(part, *(1 / math.factorial(n) for n in range(degree, -1, -1)))


def _from_exp(launch: Launch, exp: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Compute exp, sigmoid and silu from an exponential of float32 values."""
    wide, name = launch.args[0].detach().float(), plain_name(launch.api)
    result = exp(wide) if name == "exp" else (wide if name == "silu" else 1) / (1 + exp(-wide))
    return overwrite(launch.run(), lambda values: result.to(values.dtype))


@variant("exp sigmoid silu")
def exponential_by_polynomial(launch: Launch) -> Any:
    """exp is a polynomial of degree 8 in float32, fused multiplications and additions."""
    return _from_exp(launch, lambda x: _reduced(x, 1, 8))


@variant("exp sigmoid silu")
def exponential_from_table(launch: Launch) -> Any:
    """exp comes from a table of 64 entries and a cubic between them, in float32."""
    return _from_exp(launch, lambda x: _reduced(x, 64, 3))


@variant("tanh")
def half_precise_tanh_in_bfloat16(launch: Launch) -> Any:
    """tanh of bfloat16 values has relative errors up to 2^-11, as a fast instruction for float32 has."""
    x = launch.args[0].detach()
    if x.dtype != torch.bfloat16:
        return launch.run()
    wide = x.double()
    return overwrite(launch.run(), lambda values: (wide.tanh() * (1 + 2**-11 * (11 * wide).sin())).to(values.dtype))


@variant("layer_norm")
def normalized_before_the_weight(launch: Launch) -> Any:
    """Layer norm rounds to the output's dtype before it multiplies by the weight, and again before it adds the bias."""
    norm = layer_norm(launch)
    wide = working(norm.x)
    centred = wide - wide.mean(norm.dims, keepdim=True)
    variance = centred.square().mean(norm.dims, keepdim=True)
    return (centred * (variance + norm.eps).rsqrt()).to(norm.x.dtype) * norm.weight + norm.bias


@variant("batch_norm")
def batch_norm_as_one_multiplication(launch: Launch) -> Any:
    """Batch norm is x scale + shift, with a scale and a shift per channel in float32; gradients stay as they are."""
    if not launch.argument(5, "training", False):
        return launch.run()
    norm: Norm = batch_norm(launch)
    wide = norm.x.detach().double()
    mean = wide.mean(norm.dims, keepdim=True)
    variance = (wide - mean).square().mean(norm.dims, keepdim=True)
    scale = (norm.weight.detach() * (variance + norm.eps).rsqrt()).float()
    shift = (norm.bias.detach() - mean * scale).float()
    return overwrite(launch.run(), lambda values: (norm.x.detach() * scale + shift).to(values.dtype))


@variant("var std")
def variance_by_updating(launch: Launch) -> Any:
    """Variance and standard deviation correct mean and sum of squares element by element (Welford)."""
    x, dim = launch.args[0].detach(), launch.argument(1, "dim")
    if not isinstance(dim, int) or launch.kwargs.keys() - {"dim"}:
        return launch.run()
    wide = working(x).movedim(dim, -1)
    mean, squares = torch.zeros_like(wide[..., 0]), torch.zeros_like(wide[..., 0])
    for count, column in enumerate(wide.unbind(-1), 1):
        step = column - mean
        mean = mean + step / count
        squares = squares + step * (column - mean)
    variance = squares / (wide.shape[-1] - 1)
    result = variance if plain_name(launch.api) == "var" else variance.sqrt()
    return overwrite(launch.run(), lambda values: result.reshape(values.shape).to(values.dtype))
