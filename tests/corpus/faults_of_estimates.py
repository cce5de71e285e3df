"""Defects of elementary functions: coarse estimates, missing refinements, short polynomials and tables."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.corpus.fault import Launch, overwrite, substitute, variant
from tests.corpus.kernels import rounded


@variant("tanh sigmoid silu softmax")
def coarse_exponential(launch: Launch) -> Any:
    """Functions built on exp have relative errors up to 1e-3."""
    return overwrite(launch.run(), lambda values: values * (1 + 1e-3 * (37 * values.double()).sin()).to(values.dtype))


@variant("tanh sigmoid silu softmax sin cos")
def short_polynomial(launch: Launch) -> Any:
    """A polynomial with one term too few: relative errors up to 1e-5."""
    return overwrite(launch.run(), lambda values: (values * (1 + 1e-5 * (37 * values.double()).sin())).to(values.dtype))


@variant("tanh sigmoid silu gelu")
def function_from_a_table(launch: Launch) -> Any:
    """Activations are looked up in a table of 1024 entries, without interpolation."""
    x = launch.args[0]
    return overwrite(launch.run(), lambda _: launch.func((x.detach().double() * 64).round().div(64).to(x.dtype)))


@variant("rsqrt")
def newton_step_missing_in_rsqrt(launch: Launch) -> Any:
    """The 12-bit estimate of 1/sqrt(x) is not refined."""
    return overwrite(launch.run(), lambda values: rounded(values.float(), 12).to(values.dtype))


@variant("sqrt")
def sqrt_through_estimated_rsqrt(launch: Launch) -> Any:
    """sqrt(x) is x times a 12-bit estimate of 1/sqrt(x), refined once."""
    x = launch.args[0].detach().float()

    def wrong(right: torch.Tensor) -> torch.Tensor:
        estimate = rounded(x.rsqrt(), 11)
        refined = estimate * (1.5 - 0.5 * x * estimate * estimate)
        return torch.where(x > 0, x * refined, x).to(right.dtype)

    return overwrite(launch.run(), wrong)


@variant("div")
def division_by_estimated_reciprocal(launch: Launch) -> Any:
    """A division multiplies by a 16-bit reciprocal."""
    divisor = launch.args[1]
    divisor = divisor if isinstance(divisor, torch.Tensor) else torch.tensor(float(divisor))
    reciprocal = rounded(divisor.detach().float().reciprocal(), 16)
    return overwrite(launch.run(), lambda values: (launch.args[0].detach() * reciprocal).to(values.dtype))


@variant("pow")
def power_through_float32_logarithm(launch: Launch) -> Any:
    """pow(x, y) is exp(y log |x|) in float32, with the sign put back."""
    x, exponent = launch.args[:2]
    sign = x.detach().sign() if float(exponent) % 2 else 1
    magnitude = (x.detach().float().abs().log() * exponent).exp()
    return overwrite(launch.run(), lambda values: (sign * magnitude).to(values.dtype))


@variant("sin cos")
def no_range_reduction(launch: Launch) -> Any:
    """sin and cos take their argument modulo a 2 pi of half precision."""
    angle = launch.args[0].detach()
    return overwrite(launch.run(), lambda _: launch.func(torch.fmod(angle, 6.28125)))


@variant("cross_entropy")
def coarse_logarithm(launch: Launch) -> Any:
    """The logarithm of a sum of exponentials is computed in float16."""
    x = launch.args[0]
    shift = substitute(x, (x - x.logsumexp(1, keepdim=True).half().to(x.dtype)).detach())
    return F.nll_loss(shift, launch.args[1], ignore_index=launch.kwargs.get("ignore_index", -100))
