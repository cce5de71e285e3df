"""Operators of torch_npu: attention, its caches and the keys that it selects."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.inputs.constraints import indices, values
from pytest_msprobe.engine.replay.ops.ranked_positions import RankedPositions
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows
from pytest_msprobe.engine.replay.random_apis import (
    attention_dropout,
    mask_bits,
    probability_switch,
    unverifiable,
)
from pytest_msprobe.extensions.npu_operators.inputs import caches, selected_keys
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing
from pytest_msprobe.extensions.npu_operators.sparse_attention import lightning_indexer, nsa_compressed_attention

_EIGHT_BITS = frozenset({torch.int8, torch.uint8})

ATTENTION_ROWS: Rows = (
    (
        "npu_fusion_attention npu_fusion_attention_v2 npu_fusion_attention_v3",
        OpInfo(
            constraint=values.packed_attention(),
            random=unverifiable.fused_attention,
            switch=probability_switch.probability("keep_prob", 9, 1.0),
            readable=attention_dropout.readable_by_layout,
        ),
    ),
    (
        "npu_fusion_attention_grad npu_fusion_attention_grad_v2 npu_fusion_attention_grad_v3",
        OpInfo(constraint=values.packed_attention()),
    ),
    (
        "npu_prompt_flash_attention npu_incre_flash_attention",
        OpInfo(constraint=caches.attended_blocks, quantizes=_EIGHT_BITS),
    ),
    (
        "npu_fused_infer_attention_score npu_fused_infer_attention_score_v2",
        OpInfo(constraint=caches.attended_blocks, quantizes=_EIGHT_BITS),
    ),
    # caches of keys and values,
    ("npu_scatter_pa_kv_cache", OpInfo(constraint=caches.scattered(2, 4), in_place=True)),
    ("npu_scatter_pa_kv_cache_functional", OpInfo(constraint=caches.scattered(2, 4))),
    ("npu_scatter_pa_cache", OpInfo(constraint=caches.scattered(5, 1), in_place=True)),
    ("npu_gather_pa_kv_cache", OpInfo(constraint=caches.gathered, in_place=True)),
    ("npu_gather_pa_kv_cache_functional", OpInfo(constraint=caches.gathered)),
    (
        "npu_kv_rmsnorm_rope_cache npu_kv_rmsnorm_rope_cache_v2",
        OpInfo(constraint=caches.latent_index, in_place=True, quantizes=_EIGHT_BITS),
    ),
    (
        "npu_kv_rmsnorm_rope_cache_v2_functional",
        OpInfo(constraint=caches.latent_index, quantizes=_EIGHT_BITS),
    ),
    (
        "npu_qkv_rms_norm_rope_cache",
        OpInfo(
            constraint=caches.slots_of(7, "k_cache", 5, "index", size_at=2),
            in_place=True,
            quantizes=_EIGHT_BITS,
        ),
    ),
    (
        "npu_qkv_rms_norm_rope_cache_functional",
        OpInfo(
            constraint=caches.slots_of(7, "k_cache", 5, "index", size_at=2),
            quantizes=_EIGHT_BITS,
        ),
    ),
    (
        "npu_rope_quant_kvcache npu_dequant_rope_quant_kvcache",
        OpInfo(constraint=caches.quantized_rows, in_place=True, quantizes=_EIGHT_BITS),
    ),
    ("_npu_reshape_and_cache", OpInfo(constraint=caches.filled, in_place=True)),
    ("_npu_paged_attention", OpInfo(constraint=caches.attended_pages(6), in_place=True)),
    ("_npu_paged_attention_v2", OpInfo(constraint=caches.attended_pages(2), in_place=True)),
    ("npu_paged_cache_load", OpInfo(constraint=caches.loaded, in_place=True)),
    ("_npu_rotary_embedding", OpInfo(constraint=routing.rows_of(4, "cos_sin_cache", 0, "positions"), in_place=True)),
    ("npu_advance_step_flashattn", OpInfo(constraint=caches.decoded, in_place=True)),
    (
        "npu_mla_prolog npu_mla_prolog_v2",
        OpInfo(
            constraint=caches.slots_of(10, "kv_cache", 9, "cache_index"),
            in_place=True,
            quantizes=_EIGHT_BITS,
        ),
    ),
    (
        "npu_mla_prolog_v3",
        OpInfo(
            constraint=caches.slots_of(9, "kv_cache", 11, "cache_index"),
            in_place=True,
            quantizes=_EIGHT_BITS,
        ),
    ),
    (
        "npu_mla_prolog_v3_functional",
        OpInfo(
            constraint=caches.slots_of(9, "kv_cache", 11, "cache_index"),
            quantizes=_EIGHT_BITS,
        ),
    ),
    # keys that are selected,
    (
        "npu_lightning_indexer",
        OpInfo(
            constraint=selected_keys.indexer,
            selection=RankedPositions(lightning_indexer.lightning_indexer_scores, outputs=2, values_at=1),
        ),
    ),
    (
        "npu_quant_lightning_indexer",
        OpInfo(
            constraint=selected_keys.indexer,
            selection=RankedPositions(lightning_indexer.quant_lightning_indexer_scores, outputs=1),
        ),
    ),
    ("npu_sparse_flash_attention", OpInfo(constraint=selected_keys.sparse_attention)),
    ("npu_kv_quant_sparse_flash_attention", OpInfo(constraint=selected_keys.quantized_attention)),
    ("npu_sparse_flash_attention_grad", OpInfo(constraint=selected_keys.sparse_attention_gradient)),
    ("npu_lightning_indexer_grad", OpInfo(constraint=selected_keys.indexer_gradient)),
    ("npu_sparse_lightning_indexer_grad_kl_loss", OpInfo(constraint=selected_keys.indexer_loss)),
    (
        "npu_nsa_compress_attention",
        OpInfo(selection=RankedPositions(nsa_compressed_attention.nsa_compress_importance, outputs=4, positions_at=1)),
    ),
    (
        "npu_nsa_compress_attention_infer",
        OpInfo(
            constraint=selected_keys.pages,
            selection=RankedPositions(nsa_compressed_attention.nsa_decoding_importance, outputs=2, positions_at=1),
        ),
    ),
    ("npu_nsa_compress_infer", OpInfo(constraint=selected_keys.compressed_slots, in_place=True)),
    ("npu_nsa_select_attention", OpInfo(constraint=selected_keys.selected_blocks)),
    ("npu_nsa_select_attention_grad", OpInfo(constraint=selected_keys.selected_blocks_gradient)),
    ("npu_nsa_select_attention_infer", OpInfo(constraint=selected_keys.decoded_blocks)),
    (
        "npu_fused_floyd_attention_backward",
        OpInfo(constraint=selected_keys.copied_statistics((7, "softmax_max"), (8, "softmax_sum"))),
    ),
    ("npu_ring_attention_update", OpInfo(constraint=selected_keys.ring_attention)),
    ("npu_apply_rotary_pos_emb", OpInfo(in_place=True)),
    ("npu_mrope", OpInfo(constraint=routing.rows_of(3, "cos_sin_cache", 0, "positions"))),
    ("npu_add_rms_norm_v2", OpInfo(in_place=True)),
    ("npu_softmax_cross_entropy_with_logits", OpInfo(constraint=values.distributions(1, "labels"))),
    ("npu_softmax_cross_entropy_with_logits_backward", OpInfo(constraint=values.distributions(2, "labels"))),
    ("npu_cross_entropy_loss", OpInfo(constraint=indices.class_target)),
    ("npu_cross_entropy_loss_backward", OpInfo(constraint=indices.target_of_log_probabilities)),
    (
        "npu_fused_attention_score npu_fused_attention_score_fwd",
        OpInfo(
            random=unverifiable.attention_score,
            switch=probability_switch.probability("keep_prob", 5, 1.0),
            readable=attention_dropout.readable_score,
        ),
    ),
    (
        "npu_multi_head_attention",
        OpInfo(
            random=unverifiable.attention_layer,
            switch=probability_switch.probability("dropout_prob", 17),
        ),
    ),
    (
        "npu_dropout_with_add_softmax",
        OpInfo(
            random=mask_bits.dropout_with_softmax,
            switch=probability_switch.probability("prob", 3),
        ),
    ),
)
