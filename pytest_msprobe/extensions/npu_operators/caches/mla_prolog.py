"""The prolog of multi-head latent attention (DeepSeek-V2, 2024): queries, and the latent keys of the caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators import caches
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, functional, refuse
from pytest_msprobe.extensions.npu_operators.caches.normalized_caches import rms_normalized
from pytest_msprobe.extensions.npu_operators.caches.paged_caches import (
    as_chunks,
    quantized_tokens,
    write_in_chunks,
    write_tokens,
)
from pytest_msprobe.extensions.npu_operators.layers.rotary import npu_interleave_rope
from pytest_msprobe.extensions.npu_operators.quantization.quantization import quantized_by_row
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class PrologInputs:
    """The arguments that the versions share; T are the tokens, whatever dimensions they come in.

    ``token_x`` (T, He) times ``weight_dq`` (He, Hcq) is what queries come from, ``weight_uq_qr`` (Hcq, N * (D + Dr))
    makes them, ``weight_uk`` (N, D, Hckv) brings them into the dimensions of the cache. ``weight_dkv_kr``
    (He, Hckv + Dr) makes what the caches hold. Whole numbers come with scales: those of ``token_x`` (T, 1), of a
    weight (1, its columns).
    """

    token_x: Tensor
    weight_dq: Tensor
    weight_uq_qr: Tensor
    weight_uk: Tensor
    weight_dkv_kr: Tensor
    rmsnorm_gamma_cq: Tensor
    rmsnorm_gamma_ckv: Tensor
    rope_sin: Tensor
    rope_cos: Tensor
    dequant_scale_x: Tensor | None
    dequant_scale_w_dq: Tensor | None
    dequant_scale_w_uq_qr: Tensor | None
    dequant_scale_w_dkv_kr: Tensor | None
    quant_scale_ckv: Tensor | None
    quant_scale_ckr: Tensor | None
    smooth_scales_cq: Tensor | None
    rmsnorm_epsilon_cq: float
    rmsnorm_epsilon_ckv: float
    qc_qr_scale: float = 1.0
    kc_scale: float = 1.0

    @property
    def tokens(self) -> Tensor:
        """Return ``token_x`` as (T, He)."""
        return self.token_x.flatten(0, -2)

    def turned(self, x: Tensor) -> Tensor:
        """Turn (T, ..., Dr) by the angle of each token, as ``npu_interleave_rope`` does."""
        shape = (len(x), *[1] * (x.dim() - 2), -1)
        return npu_interleave_rope(x, self.rope_cos.reshape(shape), self.rope_sin.reshape(shape))


@dataclass(frozen=True, slots=True)
class PrologQueries:
    """Queries (T, N, Hckv) and their rope parts (T, N, Dr), and what the latter come from.

    ``scale`` (T, N, 1) is that of quantized queries. ``norm`` (T, Hcq) and ``norm_scale`` (T, 1) are what
    ``weight_uq_qr`` was multiplied with; the scale is None where that was not quantized.
    """

    query: Tensor
    rope: Tensor
    scale: Tensor | None
    norm: Tensor
    norm_scale: Tensor | None


def product(x: Tensor, weight: Tensor, scale_x: Tensor | None, scale_weight: Tensor | None) -> Tensor:
    """Return x weight, times the scales of whole numbers: of each row of x, and of each column of the weight."""
    if x.is_floating_point() and weight.is_floating_point():
        result = x @ weight
    else:
        # exact: products of whole numbers of 8 bits
        result = x.to(torch.float64) @ weight.to(torch.float64)
    for scale in (None if scale_x is None else scale_x.reshape(-1, 1), scale_weight):
        result = result if scale is None else result * scale
    return result


def queries_of(api: str, inputs: PrologInputs, *, quantized: bool) -> PrologQueries:
    """Return the queries; ``quantized`` says that those without position are rounded to int8, each head by itself.

    Their rope parts are then multiplied by ``quant_scale_ckv`` and divided by the queries' own scale, so that one
    scale counts for both. Raises NotImplementedError where ``quant_scale_ckv`` then holds several numbers.
    """
    down = product(inputs.tokens, inputs.weight_dq, inputs.dequant_scale_x, inputs.dequant_scale_w_dq)
    norm = rms_normalized(down, inputs.rmsnorm_gamma_cq, inputs.rmsnorm_epsilon_cq) * inputs.qc_qr_scale
    norm_scale = None
    if not inputs.weight_uq_qr.is_floating_point():
        wide = at_least_float32(norm)
        smooth = wide if inputs.smooth_scales_cq is None else wide * inputs.smooth_scales_cq
        norm, scale = quantized_by_row(smooth)
        norm_scale = scale.unsqueeze(-1)
    up = product(norm, inputs.weight_uq_qr, norm_scale, inputs.dequant_scale_w_uq_qr)
    heads, width, _ = inputs.weight_uk.shape
    by_head = torch.unflatten(up, -1, (heads, -1)).to(inputs.weight_uk.dtype)
    query = torch.einsum("tnd,ndc->tnc", by_head[..., :width], inputs.weight_uk)
    rope = inputs.turned(by_head[..., width:])
    if not quantized or inputs.quant_scale_ckv is None:
        return PrologQueries(query, rope, None, norm, norm_scale)
    cache_scale = inputs.quant_scale_ckv
    refuse(api, **{"quant_scale_ckv of each channel": cache_scale if cache_scale.numel() > 1 else None})
    whole, of_head = quantized_by_row(at_least_float32(query))
    scale = of_head.unsqueeze(-1)
    return PrologQueries(whole, rope * cache_scale.reshape(1) / scale, scale, norm, norm_scale)


def write_keys(
    api: str, inputs: PrologInputs, kv_cache: Tensor, kr_cache: Tensor, cache_index: Tensor, cache_mode: str
) -> None:
    """Write latent keys and their rope parts to the slots of caches (blocks, tokens, 1, Hckv) and (..., Dr).

    ``cache_mode`` "PA_NZ" says that the caches' memory is in chunks. With ``quant_scale_ckv`` and ``quant_scale_ckr``
    round(x * scale) in int8 is written. Raises NotImplementedError for another mode.
    """
    refuse(api, cache_mode=None if cache_mode in ("PA_BSND", "PA_NZ") else cache_mode)
    both = product(inputs.tokens, inputs.weight_dkv_kr, inputs.dequant_scale_x, inputs.dequant_scale_w_dkv_kr)
    width = len(inputs.rmsnorm_gamma_ckv)
    latent = rms_normalized(both[:, :width], inputs.rmsnorm_gamma_ckv, inputs.rmsnorm_epsilon_ckv) * inputs.kc_scale
    rope = inputs.turned(both[:, width:])
    for cache, tokens, scale in (
        (kv_cache, latent, inputs.quant_scale_ckv),
        (kr_cache, rope, inputs.quant_scale_ckr),
    ):
        written = quantized_tokens(tokens, scale, None, divide=False)
        if cache_mode == "PA_NZ":
            write_in_chunks(as_chunks(cache), cache_index.flatten(), written)
        else:
            write_tokens(cache, cache_index.flatten(), written.unsqueeze(1))


@golden(
    "NPU.npu_mla_prolog",
    OpInfo(constraint=caches.slots_of(10, "kv_cache", 9, "cache_index"), in_place=True, quantizes=EIGHT_BITS),
)
def npu_mla_prolog(
    token_x: Tensor, weight_dq: Tensor, weight_uq_qr: Tensor, weight_uk: Tensor, weight_dkv_kr: Tensor,
    rmsnorm_gamma_cq: Tensor, rmsnorm_gamma_ckv: Tensor, rope_sin: Tensor, rope_cos: Tensor,
    cache_index: Tensor, kv_cache: Tensor, kr_cache: Tensor,
    *, dequant_scale_x: Tensor | None = None, dequant_scale_w_dq: Tensor | None = None,
    dequant_scale_w_uq_qr: Tensor | None = None, dequant_scale_w_dkv_kr: Tensor | None = None,
    quant_scale_ckv: Tensor | None = None, quant_scale_ckr: Tensor | None = None,
    smooth_scales_cq: Tensor | None = None, rmsnorm_epsilon_cq: float = 1e-05,
    rmsnorm_epsilon_ckv: float = 1e-05, cache_mode: str = "PA_BSND",
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Return (query, query_rope, kv_cache, kr_cache), the caches written in place.

    With c = RMSNorm(x weight_dq), queries of each head are (c weight_uq) weight_uk and rope(c weight_qr), where
    weight_uq and weight_qr are the columns D and Dr of the head's part of ``weight_uq_qr``. RMSNorm(x weight_dkv) goes
    to ``kv_cache`` and rope(x weight_kr) to ``kr_cache``, at the slots of ``cache_index``; rope is that of
    ``npu_interleave_rope``. ``token_x`` is (T, He) or (B, S, He), results are (T, N, Hckv) or (B, S, N, Hckv). An int8
    ``weight_uq_qr`` is multiplied with c * ``smooth_scales_cq``, rounded to int8 token by token.

    Raises NotImplementedError for another ``cache_mode`` and for the reserved scales of x, weight_dq and weight_dkv_kr.
    """
    api = "npu_mla_prolog"
    refuse(
        api,
        dequant_scale_x=dequant_scale_x,
        dequant_scale_w_dq=dequant_scale_w_dq,
        dequant_scale_w_dkv_kr=dequant_scale_w_dkv_kr,
    )
    return npu_mla_prolog_v2(
        token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv,
        rope_sin, rope_cos, cache_index, kv_cache, kr_cache,
        dequant_scale_w_uq_qr=dequant_scale_w_uq_qr, quant_scale_ckv=quant_scale_ckv, quant_scale_ckr=quant_scale_ckr,
        smooth_scales_cq=smooth_scales_cq, rmsnorm_epsilon_cq=rmsnorm_epsilon_cq,
        rmsnorm_epsilon_ckv=rmsnorm_epsilon_ckv, cache_mode=cache_mode,
    )[:4]  # fmt: skip


@golden(
    "NPU.npu_mla_prolog_v2",
    OpInfo(constraint=caches.slots_of(10, "kv_cache", 9, "cache_index"), in_place=True, quantizes=EIGHT_BITS),
)
def npu_mla_prolog_v2(
    token_x: Tensor, weight_dq: Tensor, weight_uq_qr: Tensor, weight_uk: Tensor, weight_dkv_kr: Tensor,
    rmsnorm_gamma_cq: Tensor, rmsnorm_gamma_ckv: Tensor, rope_sin: Tensor, rope_cos: Tensor,
    cache_index: Tensor, kv_cache: Tensor, kr_cache: Tensor,
    *, dequant_scale_x: Tensor | None = None, dequant_scale_w_dq: Tensor | None = None,
    dequant_scale_w_uq_qr: Tensor | None = None, dequant_scale_w_dkv_kr: Tensor | None = None,
    quant_scale_ckv: Tensor | None = None, quant_scale_ckr: Tensor | None = None,
    smooth_scales_cq: Tensor | None = None, rmsnorm_epsilon_cq: float = 1e-05,
    rmsnorm_epsilon_ckv: float = 1e-05, cache_mode: str = "PA_BSND",
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """Return :func:`npu_mla_prolog` and the scale of quantized queries, (T, N, 1).

    With an int8 ``token_x`` and ``quant_scale_ckv`` of one number queries are rounded to int8, each head by its
    greatest magnitude / 127; their rope parts are multiplied by ``quant_scale_ckv`` / scale. Otherwise there is None.
    """
    inputs = PrologInputs(
        token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv,
        rope_sin, rope_cos, dequant_scale_x, dequant_scale_w_dq, dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr,
        quant_scale_ckv, quant_scale_ckr, smooth_scales_cq, rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv,
    )  # fmt: skip
    api = "npu_mla_prolog_v2"
    queries = queries_of(api, inputs, quantized=not token_x.is_floating_point() and quant_scale_ckv is not None)
    write_keys(api, inputs, kv_cache, kr_cache, cache_index, cache_mode)
    query, rope = (torch.unflatten(tensor, 0, token_x.shape[:-1]) for tensor in (queries.query, queries.rope))
    return query, rope, kv_cache, kr_cache, queries.scale


@golden(
    "NPU.npu_mla_prolog_v3",
    OpInfo(constraint=caches.slots_of(9, "kv_cache", 11, "cache_index"), in_place=True, quantizes=EIGHT_BITS),
)
def npu_mla_prolog_v3(
    token_x: Tensor, weight_dq: Tensor, weight_uq_qr: Tensor, weight_uk: Tensor, weight_dkv_kr: Tensor,
    rmsnorm_gamma_cq: Tensor, rmsnorm_gamma_ckv: Tensor, rope_sin: Tensor, rope_cos: Tensor, kv_cache: Tensor,
    kr_cache: Tensor,
    *, cache_index: Tensor | None = None, dequant_scale_x: Tensor | None = None,
    dequant_scale_w_dq: Tensor | None = None, dequant_scale_w_uq_qr: Tensor | None = None,
    dequant_scale_w_dkv_kr: Tensor | None = None, quant_scale_ckv: Tensor | None = None,
    quant_scale_ckr: Tensor | None = None, smooth_scales_cq: Tensor | None = None,
    actual_seq_len: Tensor | None = None, k_nope_clip_alpha: Tensor | None = None,
    rmsnorm_epsilon_cq: float = 1e-05, rmsnorm_epsilon_ckv: float = 1e-05, cache_mode: str = "PA_BSND",
    query_norm_flag: bool = False, weight_quant_mode: int = 0, kv_cache_quant_mode: int = 0,
    query_quant_mode: int = 0, ckvkr_repo_mode: int = 0, quant_scale_repo_mode: int = 0, tile_size: int = 128,
    qc_qr_scale: float = 1.0, kc_scale: float = 1.0, token_x_dtype: int | None = None,
    weight_dq_dtype: int | None = None, weight_uq_qr_dtype: int | None = None,
    weight_dkv_kr_dtype: int | None = None, kv_cache_dtype: int | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Write the caches as :func:`npu_mla_prolog` does; return (query, query_rope, its scale, c, the scale of c).

    ``qc_qr_scale`` multiplies c, ``kc_scale`` what goes to ``kv_cache``. Queries are rounded where
    ``weight_quant_mode`` is 2 and ``kv_cache_quant_mode`` 1. c, (T, Hcq) or (B, S, Hcq), is what ``weight_uq_qr`` is
    multiplied with, rounded for an int8 one, its scale (T, 1); both are None without ``query_norm_flag``.
    ``query_quant_mode`` and ``tile_size`` repeat what others say.

    Raises NotImplementedError for weights in 8-bit floats (``weight_quant_mode`` from 3 on), caches quantized tile by
    tile or stored together with their scales, for another ``cache_mode``, for dtypes that reinterpret bytes, and for
    the reserved ``actual_seq_len``; ValueError without ``cache_index``.
    """
    api = "npu_mla_prolog_v3"
    refuse(
        api,
        actual_seq_len=actual_seq_len,
        k_nope_clip_alpha=k_nope_clip_alpha,
        weight_quant_mode=weight_quant_mode if weight_quant_mode > 2 else None,
        kv_cache_quant_mode=kv_cache_quant_mode if kv_cache_quant_mode > 2 else None,
        ckvkr_repo_mode=ckvkr_repo_mode or None,
        quant_scale_repo_mode=quant_scale_repo_mode or None,
        token_x_dtype=token_x_dtype,
        weight_dq_dtype=weight_dq_dtype,
        weight_uq_qr_dtype=weight_uq_qr_dtype,
        weight_dkv_kr_dtype=weight_dkv_kr_dtype,
        kv_cache_dtype=kv_cache_dtype,
    )
    if cache_index is None:
        raise ValueError(f"{api} with cache_mode {cache_mode} needs cache_index")
    inputs = PrologInputs(
        token_x, weight_dq, weight_uq_qr, weight_uk, weight_dkv_kr, rmsnorm_gamma_cq, rmsnorm_gamma_ckv,
        rope_sin, rope_cos, dequant_scale_x, dequant_scale_w_dq, dequant_scale_w_uq_qr, dequant_scale_w_dkv_kr,
        quant_scale_ckv, quant_scale_ckr, smooth_scales_cq, rmsnorm_epsilon_cq, rmsnorm_epsilon_ckv,
        qc_qr_scale, kc_scale,
    )  # fmt: skip
    queries = queries_of(api, inputs, quantized=weight_quant_mode == 2 and kv_cache_quant_mode == 1)
    write_keys(api, inputs, kv_cache, kr_cache, cache_index, cache_mode)
    query, rope, norm = (
        torch.unflatten(tensor, 0, token_x.shape[:-1]) for tensor in (queries.query, queries.rope, queries.norm)
    )
    norms = (norm, queries.norm_scale) if query_norm_flag else (None, None)
    return query, rope, queries.scale, *norms


npu_mla_prolog_v3_functional = golden(
    "NPU.npu_mla_prolog_v3_functional",
    OpInfo(constraint=caches.slots_of(9, "kv_cache", 11, "cache_index"), quantizes=EIGHT_BITS),
)(functional(npu_mla_prolog_v3, "kv_cache", "kr_cache"))
