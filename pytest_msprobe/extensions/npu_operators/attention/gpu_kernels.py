"""Kernels that a GPU has for what torch_npu fuses: a baseline recorded there is a kernel's, and not the formula's.

They are SDPA's, torch.nn.functional.scaled_dot_product_attention: FlashAttention-2 and memory-efficient attention.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from pytest_msprobe.extensions.npu_operators.attention.attention_core import exponentials

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]


class NoKernelError(Exception):
    """No fused kernel computes this; the text says what is in its way."""


class FusedAttention:
    """A fused attention by a kernel, and by its golden ``definition`` where no kernel takes the call.

    ``stand_in`` is why the definition stood in at the last call; it is empty where a kernel computed.
    """

    def __init__(self, definition: Callable[..., Any]) -> None:
        self.stand_in = ""
        self._definition = definition

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Take the definition's arguments and return what it returns, statistics in float32 or wider."""
        try:
            result = self._definition(*args, **kwargs, attend=attend_by_kernel)
        except NoKernelError as missing:
            self.stand_in = f"computed by its golden definition in place of a fused kernel: {missing}"
            return self._definition(*args, **kwargs)
        self.stand_in = ""
        return result


def attend_by_kernel(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    hidden: Tensor | None,
    scale: float,
    keep_prob: float,
    sink: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return attention of (B, N, S, D) tensors by SDPA's flash or memory-efficient kernel.

    The kernels keep maximum and sum to themselves: these two are computed by definition, in float32 or wider. Raises
    NoKernelError where no kernel takes the call.
    """
    for name, operand in {"pse": bias, "sink": sink}.items():
        if operand is not None:
            raise NoKernelError(f"kernels take no {name}")
    if not (q.numel() and k.numel()):
        raise NoKernelError("there are no tokens")
    out = _by_kernel(q, k, v, hidden, scale, keep_prob)
    with torch.no_grad():
        wide = torch.promote_types(q.dtype, torch.float32)
        each_head = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        _, maximum, total = exponentials(q.to(wide), each_head.to(wide), None, hidden, scale)
    return out, maximum.squeeze(-1), total.squeeze(-1)


def _by_kernel(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, scale: float, keep_prob: float) -> Tensor:
    if hidden is None or not hidden.any():
        return _sdpa(q, k, v, None, scale, keep_prob)
    rows, columns = q.shape[2], k.shape[2]
    above = torch.ones(rows, columns, dtype=torch.bool, device=hidden.device).triu(1)
    # flash takes no mask but the causal one, which it draws from the top left in square scores only
    if rows == columns and bool((hidden == above).all()):
        return _sdpa(q, k, v, None, scale, keep_prob, is_causal=True)
    # what a kernel returns for a row with everything hidden differs; here it is 0, without a gradient
    blind = hidden.all(-1, keepdim=True)
    out = _sdpa(q, k, v, ~hidden | blind, scale, keep_prob)
    return out.masked_fill(blind, 0.0)


def _sdpa(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, scale: float, keep_prob: float, *, is_causal: bool = False
) -> Tensor:
    groups = q.shape[1] // k.shape[1]
    # of the kernels only flash reads grouped heads where they are
    for heads in sorted({1, groups}, reverse=True):
        grouped = heads > 1
        key, value = (k, v) if grouped else (k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1))
        try:
            with sdpa_kernel(_BACKENDS):
                return F.scaled_dot_product_attention(
                    q, key, value, visible, 1 - keep_prob, is_causal, scale=scale, enable_gqa=grouped
                )
        except RuntimeError as error:
            if "No available kernel" not in str(error):
                raise
    dropout = f" and dropout {1 - keep_prob:g}" if keep_prob < 1 else ""
    raise NoKernelError(
        f"neither flash nor efficient attention takes {q.dtype}, {q.shape[-1]} dimensions per head{dropout}"
    )
