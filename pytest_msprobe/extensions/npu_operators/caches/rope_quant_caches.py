"""Queries, keys and values of one product: queries and keys turned, keys and values quantized into caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.caches.cache_slots import quantized_tokens, write_tokens
from pytest_msprobe.extensions.npu_operators.layers.rotary import npu_rotary_mul
from pytest_msprobe.extensions.npu_operators.reference_arguments import at_least_float32, refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_Results = tuple["Tensor", "Tensor | None", "Tensor | None", "Tensor", "Tensor"]


def npu_rope_quant_kvcache(
    x: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, indices: Tensor, scale_k: Tensor,
    scale_v: Tensor, size_splits: Sequence[int],
    *, offset_k: Tensor | None = None, offset_v: Tensor | None = None, quant_mode: int = 0,
    input_layout: str = "BSND", kv_output: bool = False, cache_mode: str = "contiguous",
) -> _Results:  # fmt: skip
    """Write both caches in place, and return (queries, keys, values, k_cache, v_cache); keys and values if asked for.

    ``x`` (B, S, H) or (B, H) holds queries, keys and values, of ``size_splits`` elements. Queries and keys are turned
    as ``npu_rotary_mul`` does by cos and sin, (B, S, 1, D) or (B, D). Caches (C, length, N, D) are int8: keys and
    values are written as round(x / scale + offset), parameters (N, D) or (D), as CANN's kernel divides.
    ``cache_mode`` "contiguous": from token ``indices[b]`` of row b on; "page": to the slot of ``indices``, one for each
    token, of which negative ones are skipped. Results are (B, S, N, D) or (B, N, D).

    Raises NotImplementedError for another ``quant_mode`` than 0 (static), ``input_layout`` or ``cache_mode``.
    """
    given = _Cached(k_cache, v_cache, indices, scale_k, scale_v, offset_k, offset_v, cache_mode)
    given.refuse("npu_rope_quant_kvcache", quant_mode, input_layout)
    return _written(x, cos, sin, size_splits, kv_output, given)


def npu_dequant_rope_quant_kvcache(
    x: Tensor, cos: Tensor, sin: Tensor, k_cache: Tensor, v_cache: Tensor, indices: Tensor, scale_k: Tensor,
    scale_v: Tensor, size_splits: Sequence[int],
    *, offset_k: Tensor | None = None, offset_v: Tensor | None = None, weight_scale: Tensor | None = None,
    activation_scale: Tensor | None = None, bias: Tensor | None = None, quant_mode: int = 0,
    input_layout: str = "BSND", kv_output: bool = False, cache_mode: str = "contiguous",
) -> _Results:  # fmt: skip
    """Return :func:`npu_rope_quant_kvcache` of x * weight_scale * activation_scale + bias.

    ``x`` is int32, ``weight_scale`` (H), ``activation_scale`` one number for each token; a ``bias`` (H) of int32 is
    added to x before. Without whole numbers in x these arguments count for nothing (CANN's
    ``aclnnDequantRopeQuantKvcache``). Raises ValueError for int32 without ``weight_scale``.
    """
    given = _Cached(k_cache, v_cache, indices, scale_k, scale_v, offset_k, offset_v, cache_mode)
    given.refuse("npu_dequant_rope_quant_kvcache", quant_mode, input_layout)
    if not x.is_floating_point():
        if weight_scale is None:
            raise ValueError("npu_dequant_rope_quant_kvcache of int32 needs weight_scale")
        x = _dequantized(x, at_least_float32(weight_scale), activation_scale, bias).to(cos.dtype)
    return _written(x, cos, sin, size_splits, kv_output, given)


def _dequantized(x: Tensor, weight_scale: Tensor, activation_scale: Tensor | None, bias: Tensor | None) -> Tensor:
    whole_bias = bias if bias is not None and not bias.is_floating_point() else None
    scaled = (x if whole_bias is None else x + whole_bias) * weight_scale
    if activation_scale is not None:
        scaled = scaled * activation_scale.reshape(*x.shape[:-1], 1)
    return scaled if bias is None or whole_bias is not None else scaled + bias


@dataclass(frozen=True, slots=True)
class _Cached:
    """The caches, and how keys and values get into them."""

    k_cache: Tensor
    v_cache: Tensor
    indices: Tensor
    scale_k: Tensor
    scale_v: Tensor
    offset_k: Tensor | None
    offset_v: Tensor | None
    cache_mode: str

    def refuse(self, api: str, quant_mode: int, input_layout: str) -> None:
        """Raise NotImplementedError for a mode or a layout that is not documented."""
        refuse(
            api,
            quant_mode=quant_mode or None,
            input_layout=None if input_layout == "BSND" else input_layout,
            cache_mode=None if self.cache_mode in ("contiguous", "page") else self.cache_mode,
        )

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Write keys and values (B, S, N, D), quantized, to the caches."""
        batch, length = keys.shape[:2]
        slots = self.indices.reshape(-1)
        if self.cache_mode == "contiguous":
            rows = torch.arange(batch, device=slots.device).unsqueeze(1) * self.k_cache.shape[1]
            slots = (rows + slots.unsqueeze(1) + torch.arange(length, device=slots.device)).flatten()
        for cache, tokens, scale, offset in (
            (self.k_cache, keys, self.scale_k, self.offset_k),
            (self.v_cache, values, self.scale_v, self.offset_v),
        ):
            write_tokens(cache, slots, quantized_tokens(tokens, scale, offset, divide=True).flatten(0, 1))


def _written(
    x: Tensor, cos: Tensor, sin: Tensor, size_splits: Sequence[int], kv_output: bool, given: _Cached
) -> _Results:
    width = cos.shape[-1]
    parts = (torch.unflatten(each, -1, (-1, width)) for each in torch.split(x, list(size_splits), -1))
    queries, keys, values = (each if x.dim() == 3 else each.unsqueeze(1) for each in parts)
    by_token = (*queries.shape[:2], 1, width)
    cos, sin = cos.reshape(by_token), sin.reshape(by_token)
    queries, keys = npu_rotary_mul(queries, cos, sin), npu_rotary_mul(keys, cos, sin)
    given.write(keys, values)
    found = [queries, keys, values] if x.dim() == 3 else [each.squeeze(1) for each in (queries, keys, values)]
    key, value = found[1:] if kv_output else (None, None)
    return found[0], key, value, given.k_cache, given.v_cache
