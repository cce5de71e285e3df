"""MindSpore's functions of networks whose arguments or defaults differ from torch's: losses, convolutions, attention.

Each has MindSpore's signature; the names of arguments are MindSpore's too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.references import ReferenceRegistry


def softmin(x: Tensor, axis: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return softmax of the negative input along an axis, by default the last."""
    return torch.softmax(-x, axis, dtype=dtype)


def softmax(input: Tensor, axis: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:  # noqa: A002
    """Return exponentials divided by their sum along an axis, by default the last."""
    return torch.softmax(input, axis, dtype)


def log_softmax(logits: Tensor, axis: int = -1) -> Tensor:
    """Return the logarithm of softmax along an axis, by default the last."""
    return torch.log_softmax(logits, axis)


def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of logits against class numbers or probabilities."""
    target = target if target.is_floating_point() else target.long()
    return F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def nll_loss(
    inputs: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the negative log likelihood of class numbers."""
    if label_smoothing:
        raise NotImplementedError("nll_loss with label_smoothing has no golden definition")
    return F.nll_loss(inputs, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


def _loss(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
        return function(input, target, reduction=reduction)

    return loss


def hinge_embedding_loss(inputs: Tensor, targets: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return the loss of distances against labels 1 and -1; of others MindSpore and torch make different numbers."""
    if not bool((targets.abs() == 1).all()):
        raise NotImplementedError("hinge_embedding_loss with labels other than 1 and -1 has no golden definition")
    return F.hinge_embedding_loss(inputs, targets, margin, reduction=reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, beta: float = 1.0, reduction: str = "none") -> Tensor:  # noqa: A002
    """Return the squared error below ``beta``, absolute error above."""
    return F.smooth_l1_loss(input, target, beta=beta, reduction=reduction)


def binary_cross_entropy(
    logits: Tensor, labels: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return the cross entropy of probabilities, which MindSpore calls logits, against labels."""
    return F.binary_cross_entropy(logits, labels, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross entropy of logits against labels."""
    return F.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=reduction)


def kl_div(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Return the divergence of log probabilities from labels."""
    return F.kl_div(logits, labels, reduction=reduction)


def _conv(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def conv(
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        pad_mode: str = "valid",
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        if pad_mode == "same" and any(step != 1 for step in (stride if isinstance(stride, Sequence) else [stride])):
            raise NotImplementedError("a strided convolution with pad_mode same has no golden definition")
        pad = {"valid": 0, "same": "same"}.get(pad_mode, padding)
        return function(input, weight, bias, stride=stride, padding=pad, dilation=dilation, groups=groups)

    return conv


def _avg_pool(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def avg_pool(
        input_x: Tensor,
        kernel_size: Any = 1,
        stride: Any = 1,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int = 0,
    ) -> Tensor:
        divisor = {"divisor_override": divisor_override} if divisor_override else {}
        return function(input_x, kernel_size, stride, padding, ceil_mode, count_include_pad, **divisor)

    return avg_pool


def leaky_relu(input: Tensor, alpha: float = 0.2) -> Tensor:  # noqa: A002
    """Return the input where it is positive, ``alpha`` times it otherwise."""
    return F.leaky_relu(input, alpha)


def lrn(x: Tensor, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5) -> Tensor:
    """Return the input over a power of its squares' sum in channels so near, as MindSpore documents."""
    size = 2 * depth_radius + 1
    return F.local_response_norm(x, size, alpha * size, beta, bias)


def bias_add(input_x: Tensor, bias: Tensor) -> Tensor:
    """Return the input with a bias for each channel, the second axis."""
    return input_x + bias.reshape(1, -1, *([1] * (input_x.dim() - 2)))


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return the input over its root mean square along the axes of gamma, times gamma, and one over it."""
    axes = list(range(x.dim() - gamma.dim(), x.dim()))
    scale = torch.rsqrt(x.square().mean(axes, keepdim=True) + epsilon)
    return x * scale * gamma, scale


@cache
def _fusion_attention() -> Callable[..., Any]:
    definition = ReferenceRegistry().get("NPU.npu_fusion_attention")
    if definition is None:
        raise NotImplementedError("npu_fusion_attention has no golden definition here")
    return definition


def flash_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    real_shift: Tensor | None = None,
    drop_mask: Tensor | None = None,
    padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    keep_prob: float = 1.0,
    scalar_value: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    inner_precise: int = 0,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
) -> Tensor:
    """Return fused attention; see ``npu_fusion_attention``, whose first output it is."""
    if drop_mask is not None:
        raise NotImplementedError("flash_attention_score with drop_mask has no golden definition")
    attention: Tensor = _fusion_attention()(
        query,
        key,
        value,
        head_num,
        input_layout,
        pse=real_shift,
        padding_mask=padding_mask,
        atten_mask=attn_mask,
        scale=scalar_value,
        keep_prob=keep_prob,
        pre_tockens=pre_tokens,
        next_tockens=next_tokens,
        inner_precise=inner_precise,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
    )[0]
    return attention


LAYERS: dict[str, Callable[..., Any]] = {
    **{
        f"Functional.{function.__name__}": function
        for function in (
            softmin, softmax, log_softmax, cross_entropy, nll_loss, hinge_embedding_loss, smooth_l1_loss,
            binary_cross_entropy, binary_cross_entropy_with_logits, kl_div, leaky_relu, lrn, bias_add, rms_norm,
            flash_attention_score,
        )
    },
    "Functional.mse_loss": _loss(F.mse_loss),
    "Functional.l1_loss": _loss(F.l1_loss),
    "Functional.fast_gelu": lambda x: x / (1 + torch.exp(-1.702 * x)),
    **{f"Functional.conv{n}d": _conv(getattr(F, f"conv{n}d")) for n in (1, 2, 3)},
    **{f"Functional.avg_pool{n}d": _avg_pool(getattr(F, f"avg_pool{n}d")) for n in (1, 2, 3)},
}  # fmt: skip
