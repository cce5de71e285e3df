"""Operators of torch_npu; written by `python -m tests.support.npu.operators_page`."""

# fmt: off
from __future__ import annotations

from msprobe_hooks.dump.effects import Effects, ValidRows

#: The APIs that are recorded.
RECORDED = frozenset(
    """
    _npu_dropout _npu_flash_attention _npu_paged_attention _npu_reshape_and_cache _npu_rotary_embedding
    atb._npu_flash_attention_prefix_v2 atb._npu_flash_attention_v2
    atb._npu_multi_head_latent_attention_get_workspace atb._npu_paged_attention_v2
    atb._npu_paged_attention_v2_get_workspace atb.npu_fused_add_topk_div atb.npu_mla_preprocess
    atb.npu_multi_head_latent_attention atb.npu_paged_cache_load atb.npu_ring_mla
    atb.npu_self_attention_prefix_encoder copy_memory_ empty_with_format empty_with_swapped_memory erase_stream
    fast_gelu gather_pa_kv_cache get_device_limit get_stream_limit matmul_checksum npu_add_layer_norm
    npu_add_quant_gmm npu_add_quant_gmm_ npu_add_quant_matmul npu_add_quant_matmul_ npu_add_rms_norm
    npu_add_rms_norm_cast npu_add_rms_norm_dynamic_mx_quant npu_add_rms_norm_dynamic_quant npu_add_rms_norm_quant
    npu_add_rms_norm_v2 npu_add_rms_norm_v2_functional npu_advance_step_flashattn npu_all_gather_base_mm
    npu_all_gather_quant_mm npu_all_to_all_matmul npu_all_to_all_quant_matmul npu_alloc_float_status
    npu_alltoallv_gmm npu_alltoallv_quant_gmm npu_anchor_response_flags npu_anti_mx_quant npu_anti_quant
    npu_apply_adam npu_apply_adam_w npu_apply_rotary_pos_emb npu_attention_to_ffn npu_attention_update
    npu_attention_worker_combine npu_attn_softmax_ npu_batch_gather_matmul npu_batch_gather_matmul_ npu_batch_nms
    npu_bert_apply_adam npu_block_sparse_attention npu_bmmV2 npu_bounding_box_decode npu_bounding_box_encode
    npu_broadcast npu_chunk_gated_delta_rule npu_ciou npu_clear_float_status npu_clipped_swiglu
    npu_confusion_transpose npu_conv2d npu_conv3d npu_conv_transpose2d npu_convert_weight_to_int4pack
    npu_convolution npu_convolution_transpose npu_cross_entropy_loss npu_deep_norm npu_deformable_conv2d
    npu_dense_lightning_indexer_grad_kl_loss npu_dense_lightning_indexer_softmax_lse npu_dequant_bias
    npu_dequant_rope_quant_kvcache npu_dequant_swiglu_quant npu_diou npu_dropout_do_mask npu_dropout_gen_mask
    npu_dropout_with_add_softmax npu_dtype_cast npu_dtype_cast_ npu_dual_level_quant_matmul
    npu_dynamic_block_mx_quant npu_dynamic_block_quant npu_dynamic_dual_level_mx_quant npu_dynamic_mx_quant
    npu_dynamic_mx_quant_with_dual_axis npu_dynamic_quant npu_dynamic_quant_asymmetric npu_fast_gelu npu_ffn
    npu_ffn_to_attention npu_ffn_worker_batching npu_flash_attention npu_format_cast npu_format_cast_
    npu_fused_attention_layernorm_qkv_fwd npu_fused_attention_score npu_fused_attention_score_fwd
    npu_fused_causal_conv1d npu_fused_causal_conv1d_v2 npu_fused_cross_entropy_loss_with_max_sum
    npu_fused_floyd_attention npu_fused_infer_attention_score npu_fused_infer_attention_score_v2
    npu_fused_linear_online_max_sum npu_fused_matmul npu_fusion_attention npu_fusion_attention_v2
    npu_fusion_attention_v3 npu_gather_pa_kv_cache npu_gather_pa_kv_cache_functional npu_gather_sparse_index
    npu_geglu npu_gelu npu_gelu_mul npu_gelu_quant npu_gemma_rms_norm npu_get_float_status npu_giou
    npu_gmm_alltoallv npu_grid_assign_positive npu_group_norm_silu npu_group_norm_swish npu_group_quant
    npu_grouped_dynamic_block_quant npu_grouped_dynamic_mx_quant npu_grouped_matmu npu_grouped_matmul
    npu_grouped_matmul_add npu_grouped_matmul_add_ npu_grouped_matmul_finalize_routing
    npu_grouped_matmul_swiglu_quant npu_grouped_matmul_swiglu_quant_v2 npu_gru npu_hans_decode npu_hans_encode
    npu_ifmr npu_incre_flash_attention npu_indexing npu_interleave_rope npu_iou npu_kronecker_quant
    npu_kv_quant_sparse_flash_attention npu_kv_rmsnorm_rope_cache npu_kv_rmsnorm_rope_cache_v2
    npu_kv_rmsnorm_rope_cache_v2_functional npu_layer_norm_eval npu_lightning_indexer npu_linear npu_lstm
    npu_lstm_cell npu_lstm_data npu_masked_causal_conv1d npu_masked_fill_range npu_masked_softmax_with_rel_pos_bias
    npu_matmul_all_to_all npu_matmul_compress_dequant npu_max npu_mhc_post npu_mhc_pre npu_mhc_sinkhorn npu_min
    npu_mish npu_mla_prolog npu_mla_prolog_v2 npu_mla_prolog_v3 npu_mla_prolog_v3_functional npu_mm_all_reduce_base
    npu_mm_reduce_scatter_base npu_moe_compute_expert_tokens npu_moe_distribute_combine
    npu_moe_distribute_combine_add_rms_norm npu_moe_distribute_combine_setup npu_moe_distribute_combine_teardown
    npu_moe_distribute_combine_v2 npu_moe_distribute_dispatch npu_moe_distribute_dispatch_setup
    npu_moe_distribute_dispatch_teardown npu_moe_distribute_dispatch_v2 npu_moe_finalize_routing
    npu_moe_finalize_routing_v2 npu_moe_gating_top_k npu_moe_gating_top_k_softmax npu_moe_gating_top_k_softmax_v2
    npu_moe_init_routing npu_moe_init_routing_quant npu_moe_init_routing_v2 npu_moe_re_routing npu_moe_token_permute
    npu_moe_token_permute_with_routing_map npu_moe_token_unpermute npu_moe_token_unpermute_with_routing_map
    npu_moe_update_expert npu_mrope npu_multi_head_attention npu_nms_rotated npu_nms_v4 npu_nms_with_mask
    npu_normalize_batch npu_nsa_compress npu_nsa_compress_attention npu_nsa_compress_attention_infer
    npu_nsa_compress_infer npu_nsa_select_attention npu_nsa_select_attention_infer npu_one_hot npu_pad npu_prefetch
    npu_prompt_flash_attention npu_ps_roi_pooling npu_ptiou npu_qkv_rms_norm_rope_cache
    npu_qkv_rms_norm_rope_cache_functional npu_quant_all_reduce npu_quant_conv2d npu_quant_fusion_attention
    npu_quant_gmm_alltoallv npu_quant_grouped_matmul_dequant npu_quant_lightning_indexer npu_quant_matmul
    npu_quant_matmul_all_to_all npu_quant_matmul_dequant npu_quant_matmul_gelu npu_quant_matmul_reduce_sum
    npu_quant_max npu_quant_mm_reduce_scatter npu_quant_reduce_scatter npu_quant_scatter npu_quant_scatter_
    npu_quantize npu_random_choice_with_mask npu_recurrent_gated_delta_rule
    npu_recurrent_gated_delta_rule_functional npu_reshape npu_ring_attention_update npu_rms_norm
    npu_rms_norm_dynamic_mx_quant npu_rms_norm_dynamic_quant npu_rms_norm_quant npu_rms_norm_quant_v2 npu_roi_align
    npu_roi_alignbk npu_rope_quant_kvcache npu_rotary_mul npu_rotate_quant npu_rotated_box_decode
    npu_rotated_box_encode npu_rotated_iou npu_rotated_overlaps npu_scaled_masked_softmax npu_scatter
    npu_scatter_list npu_scatter_list_ npu_scatter_nd_update npu_scatter_nd_update_ npu_scatter_pa_cache
    npu_scatter_pa_kv_cache npu_scatter_pa_kv_cache_functional npu_sign_bits_pack npu_sign_bits_unpack npu_silu
    npu_silu_ npu_sim_exponential_ npu_slice npu_softmax_cross_entropy_with_logits npu_sort_v2
    npu_sparse_flash_attention npu_sparse_lightning_indexer_grad_kl_loss npu_stride_add npu_stride_copy
    npu_sub_sample npu_swiglu npu_swiglu_group_quant npu_swiglu_mx_quant npu_swiglu_mx_quant_with_dual_axis
    npu_swiglu_quant npu_top_k_top_p npu_top_k_top_p_sample npu_trans_quant_param npu_transpose
    npu_transpose_batchmatmul npu_transpose_quant_batchmatmul npu_view_copy npu_weight_quant_batchmatmul
    npu_weight_quant_preprocess npu_yolo_boxes_encode one_ reset_stream_limit save_npugraph_tensor scatter_update
    scatter_update_ set_device_limit set_stream_limit
    """.split()
)

#: Names of operators, and what they do to memory.
EFFECTS: tuple[tuple[str, Effects], ...] = (
    (
        "npu_dequant_swiglu_quant npu_swiglu_group_quant npu_swiglu_mx_quant",
        Effects(valid_rows=ValidRows(argument="group_index", holds="sizes")),
    ),
    (
        "npu_fusion_attention npu_fusion_attention_v2 npu_fusion_attention_v3",
        Effects(defined=3),
    ),
    (
        "npu_grouped_matmul",
        Effects(valid_rows=ValidRows(argument="group_list", kind="group_list_type")),
    ),
    (
        "npu_grouped_matmul_swiglu_quant",
        Effects(defined=2, valid_rows=ValidRows(argument="group_list", at=2)),
    ),
    (
        "npu_grouped_matmul_swiglu_quant_v2",
        Effects(valid_rows=ValidRows(argument="group_list", at=4, kind="group_list_type")),
    ),
    (
        "npu_moe_gating_top_k",
        Effects(defined=2),
    ),
    (
        "npu_quant_grouped_matmul_dequant",
        Effects(valid_rows=ValidRows(argument="group_list", at=3)),
    ),
    (
        "npu_scatter_nd_update npu_scatter_nd_update_",
        Effects(carries=True),
    ),
    (
        "npu_sim_exponential_",
        Effects(unread=frozenset({"0", "input", "self"})),
    ),
)
