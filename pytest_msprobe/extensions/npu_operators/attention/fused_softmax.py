"""Softmax of attention scores together with what comes before and behind it."""

from __future__ import annotations

import torch
from torch import Tensor


def npu_masked_softmax_with_rel_pos_bias(
    x: Tensor,
    atten_mask: Tensor | None,
    relative_pos_bias: Tensor,
    scale_value: float = 1.0,
    inner_precision_mode: int = 0,
) -> Tensor:
    """Return softmax(scale_value x + atten_mask + relative_pos_bias) over the last dimension, of windows (Swin).

    ``x`` is (B, W, N, S1, S2) or (B W, N, S1, S2), ``atten_mask`` W matrices, (W, S1, S2) or with ones for other
    dimensions, ``relative_pos_bias`` N, likewise. ``inner_precision_mode`` is a matter of the device's precision.
    """
    scores = x * scale_value + relative_pos_bias.reshape(-1, *relative_pos_bias.shape[-2:])
    if atten_mask is not None:
        masks = atten_mask.reshape(-1, 1, *atten_mask.shape[-2:])
        windows = scores.reshape(-1, len(masks), *x.shape[-3:])
        scores = (windows + masks).reshape(x.shape)
    return torch.softmax(scores, -1)


def npu_attn_softmax_(self: Tensor) -> Tensor:
    """Return softmax over the last dimension, written into ``self``."""
    return self.copy_(torch.softmax(self, -1))


def npu_attn_softmax_backward_(self: Tensor, grad_output: Tensor, values: Tensor) -> Tensor:
    """Return the gradient of the scores, written into ``self``, which holds the weights of :func:`npu_attn_softmax_`.

    ``grad_output`` (B, Sq, D) is that of the weights times ``values`` (B, Skv, D).
    """
    of_weights = grad_output @ values.mT
    return self.copy_(self * (of_weights - (of_weights * self).sum(-1, keepdim=True)))


def npu_dropout_with_add_softmax(
    self: Tensor, x1: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor | None, Tensor, Tensor]:
    """Return (mask, weights, dropout(weights)), weights = softmax(x1 + alpha self) along ``dim``.

    ``prob`` is the share that is dropped, as op-plugin's code and its callers take it; the documentation divides what
    is left by it. Only the last result has a gradient. The mask, a byte for each weight, is drawn above 0; at 0 it is
    None, for nothing is documented of it then.
    """
    weights = torch.softmax(x1 + alpha * self, dim)
    if prob == 0:
        return None, weights.detach(), weights
    mask = torch.empty(-(-weights.numel() // 128) * 128, dtype=torch.uint8).bernoulli_(1 - prob)
    return mask, weights.detach(), _kept(weights, mask, prob)


def npu_dropout_with_add_softmax_backward(
    grad: Tensor, mask: Tensor, softmax_out: Tensor, alpha: float, prob: float, dim: int
) -> tuple[Tensor, None]:
    """Return (the gradient of self, None) of :func:`npu_dropout_with_add_softmax`.

    That of x1 would be it without ``alpha``; op-plugin returns ``grad`` itself for it, since masks need none, so that
    nothing is promised.
    """
    of_weights = _kept(grad, mask, prob)
    return alpha * softmax_out * (of_weights - (of_weights * softmax_out).sum(dim, keepdim=True)), None


def _kept(x: Tensor, mask: Tensor, prob: float) -> Tensor:
    """Return x / (1 - prob) where the bytes of a mask are not 0, otherwise 0."""
    return x * (mask.flatten()[: x.numel()] != 0).view(x.shape) / (1 - prob)
