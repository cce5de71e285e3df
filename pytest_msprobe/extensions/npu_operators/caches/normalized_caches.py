"""Caches whose keys are normalized, turned and quantized on their way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import caches
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, functional, refuse
from pytest_msprobe.extensions.npu_operators.caches.paged_caches import (
    as_chunks,
    quantized_tokens,
    write_in_chunks,
    write_tokens,
)
from pytest_msprobe.extensions.npu_operators.layers.rotary import npu_interleave_rope, npu_rotary_mul
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

_IN_BLOCKS = ("PA_BLK_BNSD", "PA_BLK_NZ")
_CACHE_MODES = ("Norm", "PA", "PA_BNSD", "PA_NZ", *_IN_BLOCKS)


def rms_normalized(x: Tensor, gamma: Tensor, epsilon: float) -> Tensor:
    """Return x / sqrt(mean(x^2) + epsilon) * gamma over the last dimension."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * gamma


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The optional arguments of the operators on latent keys, whatever each of them returns."""

    k_rope_scale: Tensor | None
    c_kv_scale: Tensor | None
    k_rope_offset: Tensor | None
    c_kv_offset: Tensor | None
    v: Tensor | None
    epsilon: float
    cache_mode: str


@golden("NPU.npu_kv_rmsnorm_rope_cache", OpInfo(constraint=caches.latent_index, in_place=True, quantizes=EIGHT_BITS))
def npu_kv_rmsnorm_rope_cache(
    kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor, ckv_cache: Tensor,
    *, k_rope_scale: Tensor | None = None, c_kv_scale: Tensor | None = None,
    k_rope_offset: Tensor | None = None, c_kv_offset: Tensor | None = None, v: Tensor | None = None,
    epsilon: float = 1e-5, cache_mode: str = "Norm", is_output_kv: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Write both caches in place, and return (k_cache, ckv_cache, turned keys, values), the last two if asked for.

    ``kv`` (B, N, S, D) is the values, as many dimensions as ``gamma`` has, and the keys behind them. Values are
    normalized (RMSNorm), keys turned as ``npu_interleave_rope`` does. With ``v`` (B, N, S, Dv) ``kv`` is the keys
    alone: normalized, the first dimensions turned, as many as ``cos`` has; ``v`` is written as it is. What is written
    is quantized with a scale: round(x * scale + offset) in int8 (CANN's ``aclnnKvRmsNormRopeCacheV2``).

    ===========================  ==========================  ======================================================
    ``cache_mode``               caches                      ``index``
    ===========================  ==========================  ======================================================
    Norm                         (B, N, length, D)           (B, S): the place in the batch entry's own row
    PA, PA_BNSD                  (blocks, tokens, N, D)      (B * S): the slot
    PA_NZ                        the same, in chunks         the same
    PA_BLK_BNSD, PA_BLK_NZ       as PA_BNSD, as PA_NZ        for each block of a sequence, its first slot
    ===========================  ==========================  ======================================================

    A negative index is skipped. Raises NotImplementedError for another mode.
    """
    parameters = _Parameters(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v, epsilon, cache_mode)
    key, value = _write_latent("npu_kv_rmsnorm_rope_cache", kv, gamma, cos, sin, index, k_cache, ckv_cache, parameters)
    return k_cache, ckv_cache, *((key, value) if is_output_kv else (None, None))


@golden("NPU.npu_kv_rmsnorm_rope_cache_v2", OpInfo(constraint=caches.latent_index, in_place=True, quantizes=EIGHT_BITS))
def npu_kv_rmsnorm_rope_cache_v2(
    kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor, ckv_cache: Tensor,
    *, k_rope_scale: Tensor | None = None, c_kv_scale: Tensor | None = None,
    k_rope_offset: Tensor | None = None, c_kv_offset: Tensor | None = None, v: Tensor | None = None,
    epsilon: float = 1e-5, cache_mode: str = "Norm", is_output_kv: bool = False,
    k_cache_dtype: int | None = None, ckv_cache_dtype: int | None = None,
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Return the last two results of :func:`npu_kv_rmsnorm_rope_cache`, and write the caches as it does.

    Raises NotImplementedError for dtypes, which say that the bytes of a cache mean something else.
    """
    api = "npu_kv_rmsnorm_rope_cache_v2"
    refuse(api, k_cache_dtype=k_cache_dtype, ckv_cache_dtype=ckv_cache_dtype)
    parameters = _Parameters(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v, epsilon, cache_mode)
    key, value = _write_latent(api, kv, gamma, cos, sin, index, k_cache, ckv_cache, parameters)
    return (key, value) if is_output_kv else (None, None)


npu_kv_rmsnorm_rope_cache_v2_functional = golden(
    "NPU.npu_kv_rmsnorm_rope_cache_v2_functional", OpInfo(constraint=caches.latent_index, quantizes=EIGHT_BITS)
)(functional(npu_kv_rmsnorm_rope_cache_v2, "k_cache", "ckv_cache"))


def _write_latent(
    api: str, kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor,
    ckv_cache: Tensor, parameters: _Parameters,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    refuse(api, cache_mode=None if parameters.cache_mode in _CACHE_MODES else parameters.cache_mode)
    if parameters.v is None:
        value = rms_normalized(kv[..., : len(gamma)], gamma, parameters.epsilon)
        key = npu_interleave_rope(kv[..., len(gamma) :], cos, sin)
    else:
        whole, turned = rms_normalized(kv, gamma, parameters.epsilon), cos.shape[-1]
        key = torch.cat((npu_interleave_rope(whole[..., :turned], cos, sin), whole[..., turned:]), -1)
        value = parameters.v.clone()
    for cache, tokens, scale, offset in (
        (k_cache, key, parameters.k_rope_scale, parameters.k_rope_offset),
        (ckv_cache, value, parameters.c_kv_scale, parameters.c_kv_offset),
    ):
        # parameters (N, D), (D) or (1) of tokens (B, S, N, D)
        written = quantized_tokens(tokens.transpose(1, 2), scale, offset, divide=False)
        _write_in_mode(cache, index, written, parameters.cache_mode)
    return key, value


def _write_in_mode(cache: Tensor, index: Tensor, tokens: Tensor, cache_mode: str) -> None:
    """Write tokens (B, S, N, D) where the index says."""
    batch, length = tokens.shape[:2]
    if cache_mode == "Norm":
        # (B, N, length, D) with the tokens of an entry before its heads: slot b * length + index
        by_token = cache.transpose(1, 2)
        slots = index + torch.arange(batch, device=index.device).unsqueeze(1) * by_token.shape[1]
        write_tokens(by_token, slots.masked_fill(index < 0, -1).flatten(), tokens.flatten(0, 1))
        return
    size, slots = cache.shape[1], index.flatten()
    if cache_mode in _IN_BLOCKS:
        place = torch.arange(length, device=index.device)
        first = index.reshape(batch, -1)[:, place // size]
        slots = (first // size * size + place % size).masked_fill(first < 0, -1).flatten()
    if cache_mode.endswith("NZ"):
        write_in_chunks(as_chunks(cache), slots, tokens.flatten(0, 1).flatten(1))
    else:
        write_tokens(cache, slots, tokens.flatten(0, 1))


@golden(
    "NPU.npu_qkv_rms_norm_rope_cache",
    OpInfo(constraint=caches.slots_of(7, "k_cache", 5, "index", size_at=2), in_place=True, quantizes=EIGHT_BITS),
)
def npu_qkv_rms_norm_rope_cache(
    qkv: Tensor, q_gamma: Tensor, k_gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, q_out: Tensor,
    k_cache: Tensor, v_cache: Tensor, qkv_size: Sequence[int], head_nums: Sequence[int],
    *, k_scale: Tensor | None = None, v_scale: Tensor | None = None, k_offset: Tensor | None = None,
    v_offset: Tensor | None = None, epsilon: float = 1e-6, cache_mode: str = "PA_NZ",
    is_output_qkv: bool = False,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Write ``q_out``, ``k_cache`` and ``v_cache`` in place, and return queries, keys and values if asked for.

    ``qkv`` (B * S, (Nq + Nk + Nv) * D) is split by ``head_nums``; ``qkv_size`` is (B, S, all heads, D). Queries and
    keys are normalized (RMSNorm) and turned as ``npu_rotary_mul`` does by cos and sin (B * S, D). Keys and values are
    quantized with a scale (N, D), round(x / scale + offset) in int8 (CANN's ``aclnnQkvRmsNormRopeCache``), and written
    to the slots of ``index`` (B * S) in chunks, (blocks, N * D / c, tokens, c); a negative one is skipped. What is
    returned is not quantized. Raises NotImplementedError for another ``cache_mode``.
    """
    refuse("npu_qkv_rms_norm_rope_cache", cache_mode=None if cache_mode == "PA_NZ" else cache_mode)
    width = int(qkv_size[3])
    heads = torch.unflatten(qkv, -1, (-1, width))
    queries, keys, values = torch.split(heads, list(head_nums), 1)
    cos, sin = (table.reshape(-1, 1, width) for table in (cos, sin))
    queries = npu_rotary_mul(rms_normalized(queries, q_gamma, epsilon), cos, sin)
    keys = npu_rotary_mul(rms_normalized(keys, k_gamma, epsilon), cos, sin)
    q_out.copy_(queries.flatten(1))
    write_in_chunks(k_cache, index, quantized_tokens(keys, k_scale, k_offset, divide=True).flatten(1))
    write_in_chunks(v_cache, index, quantized_tokens(values, v_scale, v_offset, divide=True).flatten(1))
    return (queries.flatten(1), keys.flatten(1), values.flatten(1)) if is_output_qkv else (None, None, None)


npu_qkv_rms_norm_rope_cache_functional = golden(
    "NPU.npu_qkv_rms_norm_rope_cache_functional",
    OpInfo(constraint=caches.slots_of(7, "k_cache", 5, "index", size_at=2), quantizes=EIGHT_BITS),
)(functional(npu_qkv_rms_norm_rope_cache, "q_out", "k_cache", "v_cache"))


_Results = tuple["Tensor", "Tensor | None", "Tensor | None", "Tensor", "Tensor"]


@golden("NPU.npu_rope_quant_kvcache", OpInfo(constraint=caches.quantized_rows, in_place=True, quantizes=EIGHT_BITS))
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
    cached = _Cached(k_cache, v_cache, indices, scale_k, scale_v, offset_k, offset_v, cache_mode)
    cached.refuse("npu_rope_quant_kvcache", quant_mode, input_layout)
    return _written(x, cos, sin, size_splits, kv_output, cached)


@golden(
    "NPU.npu_dequant_rope_quant_kvcache", OpInfo(constraint=caches.quantized_rows, in_place=True, quantizes=EIGHT_BITS)
)
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
    cached = _Cached(k_cache, v_cache, indices, scale_k, scale_v, offset_k, offset_v, cache_mode)
    cached.refuse("npu_dequant_rope_quant_kvcache", quant_mode, input_layout)
    if not x.is_floating_point():
        if weight_scale is None:
            raise ValueError("npu_dequant_rope_quant_kvcache of int32 needs weight_scale")
        x = _dequantized(x, at_least_float32(weight_scale), activation_scale, bias).to(cos.dtype)
    return _written(x, cos, sin, size_splits, kv_output, cached)


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
    x: Tensor, cos: Tensor, sin: Tensor, size_splits: Sequence[int], kv_output: bool, cached: _Cached
) -> _Results:
    width = cos.shape[-1]
    parts = (torch.unflatten(part, -1, (-1, width)) for part in torch.split(x, list(size_splits), -1))
    queries, keys, values = (part if x.dim() == 3 else part.unsqueeze(1) for part in parts)
    by_token = (*queries.shape[:2], 1, width)
    cos, sin = cos.reshape(by_token), sin.reshape(by_token)
    queries, keys = npu_rotary_mul(queries, cos, sin), npu_rotary_mul(keys, cos, sin)
    cached.write(keys, values)
    results = [queries, keys, values] if x.dim() == 3 else [part.squeeze(1) for part in (queries, keys, values)]
    key, value = results[1:] if kv_output else (None, None)
    return results[0], key, value, cached.k_cache, cached.v_cache
