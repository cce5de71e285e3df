"""Defects of formulas: cancellation, wrong constants, narrow accumulators, special values."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from tests.corpus.fault import Launch, overwrite, variant
from tests.corpus.kernels import working


@variant("erf gelu")
def error_function_of_abramowitz(launch: Launch) -> Any:
    """The error function is a polynomial that is off by 1.5e-7, and gelu is made of it."""
    x = launch.args[0]
    if launch.api.endswith("gelu"):
        if launch.argument(1, "approximate", "none") != "none":
            return launch.run()
        return overwrite(launch.run(), lambda _: (x.detach() * 0.5 * (1 + _erf(x.detach() / math.sqrt(2)))).to(x.dtype))
    return overwrite(launch.run(), lambda _: _erf(x.detach()).to(x.dtype))


def _erf(x: torch.Tensor) -> torch.Tensor:
    """Abramowitz and Stegun, 7.1.25: five digits."""
    t = 1 / (1 + 0.47047 * x.abs())
    series = t * (0.3480242 + t * (-0.0958798 + t * 0.7478556))
    return x.sign() * (1 - series * torch.exp(-x * x))


@variant("expm1 log1p")
def naive_expm1_and_log1p(launch: Launch) -> Any:
    """The one is added or taken away in the dtype itself."""
    x = launch.args[0].detach()
    naive = (x.exp() - 1) if launch.api.endswith("expm1") else (1 + x).log()
    return overwrite(launch.run(), lambda _: naive)


@variant("sigmoid")
def sigmoid_from_one_minus(launch: Launch) -> Any:
    """The sigmoid of a negative number is one minus that of the positive one."""
    x = launch.args[0].detach()
    positive = 1 / (1 + (-x.abs()).exp())
    return overwrite(launch.run(), lambda _: torch.where(x < 0, 1 - positive, positive).to(x.dtype))


@variant("erfinv")
def inverse_error_function_without_tails(launch: Launch) -> Any:
    """Beyond 0.97 the inverse error function is continued as a line."""
    x = launch.args[0].detach()
    edge = torch.erfinv(torch.tensor(0.97, dtype=x.dtype))
    line = x.sign() * (edge + (x.abs() - 0.97) * 20)
    return overwrite(launch.run(), lambda right: torch.where(x.abs() > 0.97, line, right))


@variant("atan2")
def atan2_in_half_a_circle(launch: Launch) -> Any:
    """The quadrant is not looked at."""
    y, x = launch.args[0].detach(), launch.args[1].detach()
    return overwrite(launch.run(), lambda _: torch.atan(y / x))


@variant("round")
def halves_rounded_up(launch: Launch) -> Any:
    """Halves are rounded up in place of to even."""
    x = launch.args[0].detach()
    return overwrite(launch.run(), lambda _: (x + 0.5).floor())


@variant("rms_norm")
def rms_norm_eps_outside_the_root(launch: Launch) -> Any:
    """RMS norm adds eps to the root."""
    x, weight = launch.args[0], launch.argument(2, "weight")
    eps = launch.argument(3, "eps") or torch.finfo(x.dtype).eps
    wide = working(x)
    normal = (wide / (wide.square().mean(-1, keepdim=True).sqrt() + eps)).to(x.dtype)
    return normal if weight is None else normal * weight


@variant("cumsum")
def cumsum_in_its_own_dtype(launch: Launch) -> Any:
    """Each partial sum is rounded to the dtype of the input."""
    x, dim = launch.args[0].detach(), launch.argument(1, "dim")
    if x.dtype not in (torch.float16, torch.bfloat16):
        return launch.run()
    sums, total = [], torch.zeros_like(x.select(dim, 0))
    for each in x.unbind(dim):
        total = total + each
        sums.append(total)
    return overwrite(launch.run(), lambda _: torch.stack(sums, dim))


@variant("matmul linear")
def blocks_of_a_product_rounded(launch: Launch) -> Any:
    """Sums over blocks of 32 of the inner dimension are kept in 16 bits."""
    x = launch.args[0].detach()
    weight = launch.argument(1, "weight").detach().mT if launch.api.endswith("linear") else launch.args[1].detach()
    if x.dtype not in (torch.float16, torch.bfloat16) or weight.dim() < 2:
        return launch.run()
    total = torch.zeros((), dtype=x.dtype)
    for start in range(0, x.shape[-1], 32):
        block = slice(start, start + 32)
        total = total + (x[..., block].float() @ weight[..., block, :].float()).to(x.dtype)
    bias = launch.argument(2, "bias") if launch.api.endswith("linear") else None
    total = total if bias is None else total + bias.detach()
    return overwrite(launch.run(), lambda _: total)


@variant("softmax")
def sum_of_a_softmax_not_rescaled(launch: Launch) -> Any:
    """In two passes over halves of a row, the first sum is not scaled to the new greatest element."""
    x, dim = launch.args[0].detach(), launch.argument(1, "dim", -1)
    wide = working(x)
    first, second = wide.tensor_split(2, dim)
    top = wide.amax(dim, keepdim=True)
    stale = (first - first.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True)
    total = stale + (second - top).exp().sum(dim, keepdim=True)
    return overwrite(launch.run(), lambda _: ((wide - top).exp() / total).to(x.dtype))


@variant("cross_entropy")
def smoothing_over_the_other_classes(launch: Launch) -> Any:
    """Label smoothing shares its mass among the classes that are not the label's."""
    smoothing = launch.argument(7, "label_smoothing", 0.0)
    if not smoothing:
        return launch.run()
    x, labels = launch.args[:2]
    logs = F.log_softmax(x, 1)
    right = logs.gather(1, labels[:, None])[:, 0]
    others = (logs.sum(1) - right) / (x.shape[1] - 1)
    return -((1 - smoothing) * right + smoothing * others).mean()


@variant("smooth_l1_loss")
def smooth_l1_with_a_beta_of_one(launch: Launch) -> Any:
    """The argument beta is not looked at."""
    return launch.run(beta=1.0)


@variant("addmm baddbmm")
def alpha_scales_what_is_added(launch: Launch) -> Any:
    """The factor of the product scales the added matrix."""
    alpha = launch.kwargs.get("alpha", 1)
    return launch.run(**launch.kwargs | {"alpha": 1, "beta": alpha}) if alpha != 1 else launch.run()


@variant("gru")
def gru_resets_before_the_product(launch: Launch) -> Any:
    """The reset gate acts on the state in place of on its product with the weights."""
    x, state, weights = launch.args[:3]
    if not isinstance(weights, (list, tuple)) or len(weights) != 4 or not launch.args[-1]:
        return launch.run()
    w_in, w_state, b_in, b_state = weights
    h, results = state[0], []
    for step in x.unbind(1):
        inputs = F.linear(step, w_in, b_in).chunk(3, -1)
        gates = F.linear(h, w_state, b_state).chunk(3, -1)
        reset, update = (inputs[0] + gates[0]).sigmoid(), (inputs[1] + gates[1]).sigmoid()
        new = torch.tanh(inputs[2] + F.linear(reset * h, w_state.chunk(3)[2], b_state.chunk(3)[2]))
        h = (1 - update) * new + update * h
        results.append(h)
    return torch.stack(results, 1), h[None]


@variant("sum")
def integers_summed_in_32_bits(launch: Launch) -> Any:
    """Sums of integers wrap at 32 bits."""
    right = launch.run()
    return right.to(torch.int32).to(right.dtype) if right.dtype is torch.int64 else right


@variant("amax")
def amax_skips_nan(launch: Launch) -> Any:
    """NaN is left out of the greatest element."""
    return launch.run(torch.where(launch.args[0].isnan(), -torch.inf, launch.args[0]))


@variant("to")
def cast_to_eight_bits_truncates(launch: Launch) -> Any:
    """A cast to float8 cuts off."""
    right = launch.run()
    if right.dtype is not torch.float8_e4m3fn:
        return right
    x = launch.args[0].detach().float()
    above = right.float().abs() > x.abs()
    bits = right.view(torch.uint8)
    return torch.where(above, bits - 1, bits).view(right.dtype)


@variant("fused_adamw")
def adamw_without_bias_correction(launch: Launch) -> Any:
    """The moments are not corrected for their start at zero."""
    steps = launch.args[5]
    kept = [step.clone() for step in steps]
    for step in steps:
        step.fill_(10_000)
    result = launch.run()
    for step, right in zip(steps, kept, strict=True):
        step.copy_(right)
    return result


@variant("fused_adamw")
def adamw_adds_decay_to_gradients(launch: Launch) -> Any:
    """Weight decay is added to the gradient."""
    decay = launch.kwargs.get("weight_decay", 0.0)
    gradients = [grad + decay * param for param, grad in zip(*launch.args[:2], strict=True)]
    return launch.run(launch.args[0], gradients, weight_decay=0.0)


@variant("fused_adamw")
def last_chunk_of_adamw_lost(launch: Launch) -> Any:
    """The elements behind the last whole block of 64 are not updated."""
    before = [param.clone() for param in launch.args[0]]
    result = launch.run()
    for param, old in zip(launch.args[0], before, strict=True):
        whole = param.numel() // 64 * 64
        param.flatten()[whole:].copy_(old.flatten()[whole:]) if param.is_contiguous() else None
    return result


@variant("multinomial")
def multinomial_without_its_last_category(launch: Launch) -> Any:
    """The last category is never drawn."""
    weights = launch.args[0].clone()
    weights[..., -1] = 0
    return launch.run(weights)
