"""Approximations: coarse ones and other formulas that 16 bits nearly hide, and small errors that float32 shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from tests.corpus.fault import Launch, overwrite, regraded, variant
from tests.corpus.kernels import batch_norm, layer_norm

_NARROW = (torch.float16, torch.bfloat16)


def _computed(launch: Launch, function: Callable[[torch.Tensor], torch.Tensor], *dtypes: torch.dtype) -> Any:
    """Compute results of some dtypes by a function of the first argument in float64, all others as they should be."""
    x = launch.args[0].detach().double()
    return overwrite(
        launch.run(), lambda right: function(x).to(right.dtype) if right.dtype in (dtypes or _NARROW) else right
    )


def _power_of_two(x: torch.Tensor) -> torch.Tensor:
    """2^x by a parabola between whole exponents: relative errors up to 2e-3."""
    whole = x.floor()
    part = x - whole
    return (1.00226 + part * (0.65275 + 0.34229 * part)) * torch.exp2(whole)


def _exponential(x: torch.Tensor) -> torch.Tensor:
    return _power_of_two(x / math.log(2))


def _logarithm(x: torch.Tensor) -> torch.Tensor:
    """ln x by a cubic between powers of two: errors up to 6e-4."""
    part, exponent = torch.frexp(x)
    part = 2 * part - 1
    return math.log(2) * (exponent - 1 + 0.00083 + part * (1.41565 + part * (-0.56870 + part * 0.15270)))


@variant("exp exp2")
def exponential_from_parabola_in_float16(launch: Launch) -> Any:
    """The exponential of float16 values is a parabola between powers of two."""
    return _computed(launch, _exponential if launch.api == "exp" else _power_of_two, torch.float16)


@variant("tanh")
def coarse_tanh_in_float16(launch: Launch) -> Any:
    """tanh of float16 values errs by up to a part in a thousand, in ten waves over its range."""
    return _computed(launch, lambda x: x.tanh() * (1 + 1e-3 * torch.cos(10 * torch.acos(x.tanh()))), torch.float16)


@variant("sigmoid silu")
def sigmoid_from_parabola_in_float16(launch: Launch) -> Any:
    """sigmoid and silu of float16 values use an exponential that is a parabola between powers of two."""
    factor = (lambda x: x) if launch.api == "silu" else torch.ones_like
    return _computed(launch, lambda x: factor(x) / (1 + _exponential(-x)), torch.float16)


@variant("rsqrt")
def rsqrt_by_magic_number_in_float16(launch: Launch) -> Any:
    """rsqrt of float16 values is the integer trick with one Newton step: too small by up to 1.75e-3."""

    def trick(x: torch.Tensor) -> torch.Tensor:
        estimate = (0x5F3759DF - (x.float().view(torch.int32) >> 1)).view(torch.float32).double()
        return estimate * (1.5 - 0.5 * x * estimate * estimate)

    return _computed(launch, trick, torch.float16)


@variant("sin cos")
def sine_from_parabolas_in_float16(launch: Launch) -> Any:
    """sin and cos of float16 values are a parabola squared: errors up to 1e-3."""

    def sine(x: torch.Tensor) -> torch.Tensor:
        turn = x / math.pi + (0.5 if launch.api == "cos" else 0.0)
        turn = turn - 2 * (turn / 2).round()
        once = 4 * turn * (1 - turn.abs())
        return 0.225 * (once * once.abs() - once) + once

    return _computed(launch, sine, torch.float16)


@variant("pow")
def power_from_coarse_logarithm_in_float16(launch: Launch) -> Any:
    """pow of float16 values is exp(y log x) with a logarithm that errs by up to 6e-4."""
    exponent = launch.argument(1, "exponent")
    return _computed(launch, lambda x: (exponent * _logarithm(x)).exp(), torch.float16)


@variant("log log2 log10")
def logarithm_from_cubic_in_float16(launch: Launch) -> Any:
    """Logarithms of float16 values err by up to 6e-4, relative to a scale of one."""
    base = {"log": 1.0, "log2": math.log(2), "log10": math.log(10)}[launch.api]
    return _computed(launch, lambda x: _logarithm(x) / base, torch.float16)


@variant("sigmoid tanh")
def coarse_table_in_float16(launch: Launch) -> Any:
    """Activations of float16 values are interpolated in a table with steps of a sixteenth."""
    function = torch.sigmoid if launch.api == "sigmoid" else torch.tanh

    def interpolated(x: torch.Tensor) -> torch.Tensor:
        left = (16 * x).floor() / 16
        return function(left) + 16 * (x - left) * (function(left + 1 / 16) - function(left))

    return _computed(launch, interpolated, torch.float16)


@variant("gelu")
def gelu_by_tanh_in_16_bits(launch: Launch) -> Any:
    """gelu of 16-bit values uses the tanh approximation whatever its argument says."""
    return _computed(launch, lambda x: F.gelu(x, approximate="tanh"))


@variant("gelu")
def gelu_by_erf_in_16_bits(launch: Launch) -> Any:
    """gelu of 16-bit values uses erf where its argument says tanh."""
    return _computed(launch, F.gelu)


@variant("gelu")
def gelu_by_sigmoid_in_16_bits(launch: Launch) -> Any:
    """gelu of 16-bit values is x sigmoid(1.702 x)."""
    return _computed(launch, lambda x: x * torch.sigmoid(1.702 * x))


@variant("layer_norm")
def unbiased_variance_in_layer_norm_of_16_bits(launch: Launch) -> Any:
    """Layer norm of 16-bit values divides by n - 1."""
    norm = layer_norm(launch)

    def unbiased(x: torch.Tensor) -> torch.Tensor:
        variance = x.var(norm.dims, keepdim=True)
        return norm.applied(x - x.mean(norm.dims, keepdim=True), (variance + norm.eps).rsqrt())

    return _computed(launch, unbiased)


@variant("batch_norm")
def unbiased_variance_in_batch_norm_of_16_bits(launch: Launch) -> Any:
    """Batch norm of 16-bit values divides by n - 1."""
    if not launch.argument(5, "training", False):
        return launch.run()
    norm = batch_norm(launch)

    def unbiased(x: torch.Tensor) -> torch.Tensor:
        variance = x.var(norm.dims, keepdim=True)
        return norm.applied(x - x.mean(norm.dims, keepdim=True), (variance + norm.eps).rsqrt())

    return _computed(launch, unbiased)


@variant("var std")
def biased_variance_of_16_bits(launch: Launch) -> Any:
    """Variance and standard deviation of 16-bit values divide by n."""
    function = torch.var if launch.api == "var" else torch.std
    return _computed(launch, lambda x: function(x, launch.argument(1, "dim"), correction=0))


@variant("silu softmax")
def half_precision_inside(launch: Launch) -> Any:
    """Functions of float32 values are computed in float16."""
    if launch.args[0].dtype != torch.float32:
        return launch.run()
    return overwrite(launch.run(), lambda right: launch.run(launch.args[0].detach().half()).to(right.dtype))


@variant("softmax log_softmax")
def temperature_below_one(launch: Launch) -> Any:
    """Softmax sharpens its input by a quarter."""
    return launch.run(launch.args[0] * 1.25)


@variant("log log2 log1p")
def logarithm_of_shifted_argument(launch: Launch) -> Any:
    """The logarithm adds 1e-4 to its argument, to be safe from zero."""
    return launch.run(launch.args[0] + 1e-4)


@variant("erf")
def error_function_shifted(launch: Launch) -> Any:
    """erf is too large by 2e-5 in float32."""
    return overwrite(launch.run(), lambda right: right + 2e-5 if right.dtype == torch.float32 else right)


@variant("log exp tanh sigmoid", backward=True)
def gradient_of_function_too_large(launch: Launch) -> Any:
    """Gradients of functions are too large by two parts in a hundred thousand."""
    return regraded(launch, lambda gradient: gradient * 1.00002)
