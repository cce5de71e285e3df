"""Keys and values that are normalized, turned by their positions, perhaps quantized, and written to caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.extensions.npu_operators.caches.cache_slots import (
    as_chunks,
    quantized_tokens,
    write_in_chunks,
    write_tokens,
)
from pytest_msprobe.extensions.npu_operators.layers.rotary import npu_interleave_rope, npu_rotary_mul
from pytest_msprobe.extensions.npu_operators.reference_arguments import refuse
from pytest_msprobe.extensions.npu_operators.twins import functional

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
    given = _Parameters(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v, epsilon, cache_mode)
    key, value = _write_latent("npu_kv_rmsnorm_rope_cache", kv, gamma, cos, sin, index, k_cache, ckv_cache, given)
    return k_cache, ckv_cache, *((key, value) if is_output_kv else (None, None))


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
    given = _Parameters(k_rope_scale, c_kv_scale, k_rope_offset, c_kv_offset, v, epsilon, cache_mode)
    key, value = _write_latent(api, kv, gamma, cos, sin, index, k_cache, ckv_cache, given)
    return (key, value) if is_output_kv else (None, None)


npu_kv_rmsnorm_rope_cache_v2_functional = functional(npu_kv_rmsnorm_rope_cache_v2, "k_cache", "ckv_cache")


def _write_latent(
    api: str, kv: Tensor, gamma: Tensor, cos: Tensor, sin: Tensor, index: Tensor, k_cache: Tensor,
    ckv_cache: Tensor, given: _Parameters,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    refuse(api, cache_mode=None if given.cache_mode in _CACHE_MODES else given.cache_mode)
    if given.v is None:
        value = rms_normalized(kv[..., : len(gamma)], gamma, given.epsilon)
        key = npu_interleave_rope(kv[..., len(gamma) :], cos, sin)
    else:
        whole, turned = rms_normalized(kv, gamma, given.epsilon), cos.shape[-1]
        key = torch.cat((npu_interleave_rope(whole[..., :turned], cos, sin), whole[..., turned:]), -1)
        value = given.v.clone()
    for cache, tokens, scale, offset in (
        (k_cache, key, given.k_rope_scale, given.k_rope_offset),
        (ckv_cache, value, given.c_kv_scale, given.c_kv_offset),
    ):
        # parameters (N, D), (D) or (1) of tokens (B, S, N, D)
        written = quantized_tokens(tokens.transpose(1, 2), scale, offset, divide=False)
        _write_in_mode(cache, index, written, given.cache_mode)
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
    cos, sin = (each.reshape(-1, 1, width) for each in (cos, sin))
    queries = npu_rotary_mul(rms_normalized(queries, q_gamma, epsilon), cos, sin)
    keys = npu_rotary_mul(rms_normalized(keys, k_gamma, epsilon), cos, sin)
    q_out.copy_(queries.flatten(1))
    write_in_chunks(k_cache, index, quantized_tokens(keys, k_scale, k_offset, divide=True).flatten(1))
    write_in_chunks(v_cache, index, quantized_tokens(values, v_scale, v_offset, divide=True).flatten(1))
    return (queries.flatten(1), keys.flatten(1), values.flatten(1)) if is_output_qkv else (None, None, None)


npu_qkv_rms_norm_rope_cache_functional = functional(npu_qkv_rms_norm_rope_cache, "q_out", "k_cache", "v_cache")
