"""Modules that define operators; written by `python -m tests.support.npu.operators_page`."""

from __future__ import annotations

#: Module below this package -> the APIs that it defines, as a dump names them.
DEFINED: dict[str, tuple[str, ...]] = {
    "attention.attention": (
        "Aten.npu_fusion_attention_grad", "Aten.npu_fusion_attention_grad_v2", "Aten.npu_fusion_attention_grad_v3",
        "NPU.npu_fusion_attention",
    ),
    "attention.attention_variants": (
        "Aten.npu_dropout_with_add_softmax_backward", "NPU.npu_attention_update", "NPU.npu_attn_softmax_",
        "NPU.npu_attn_softmax_backward_", "NPU.npu_dropout_with_add_softmax", "NPU.npu_fusion_attention_v2",
        "NPU.npu_fusion_attention_v3", "NPU.npu_masked_softmax_with_rel_pos_bias", "NPU.npu_ring_attention_update",
    ),
    "attention.inference_attention": (
        "NPU.npu_fused_infer_attention_score", "NPU.npu_fused_infer_attention_score_v2",
        "NPU.npu_incre_flash_attention", "NPU.npu_prompt_flash_attention",
    ),
    "attention.legacy_attention": (
        "Aten.npu_fused_attention_score_backward", "Aten.npu_multi_head_attention_backward",
        "NPU.npu_fused_attention_layernorm_qkv_fwd", "NPU.npu_fused_attention_qkv_grad",
        "NPU.npu_fused_attention_score", "NPU.npu_fused_attention_score_fwd", "NPU.npu_fused_attention_score_grad",
        "NPU.npu_multi_head_attention",
    ),
    "boxes.box_coding": (
        "NPU.npu_anchor_response_flags", "NPU.npu_bounding_box_decode", "NPU.npu_bounding_box_encode",
        "NPU.npu_grid_assign_positive", "NPU.npu_rotated_box_decode", "NPU.npu_rotated_box_encode",
        "NPU.npu_yolo_boxes_encode",
    ),
    "boxes.box_overlap": (
        "Aten._npu_ciou", "Aten.npu_ciou_backward", "Aten.npu_diou_backward", "Aten.npu_giou_backward",
        "NPU.npu_ciou", "NPU.npu_diou", "NPU.npu_giou", "NPU.npu_iou", "NPU.npu_ptiou", "NPU.npu_rotated_iou",
        "NPU.npu_rotated_overlaps",
    ),
    "boxes.box_selection": (
        "Aten.npu_ps_roi_pooling_backward", "NPU.npu_batch_nms", "NPU.npu_nms_rotated", "NPU.npu_nms_v4",
        "NPU.npu_nms_with_mask", "NPU.npu_ps_roi_pooling", "NPU.npu_roi_align", "NPU.npu_roi_alignbk",
    ),
    "caches.atb_operators": (
        "NPU._npu_paged_attention", "NPU._npu_reshape_and_cache", "NPU._npu_rotary_embedding",
        "NPU.atb._npu_paged_attention_v2", "NPU.atb.npu_paged_cache_load",
    ),
    "caches.mla_prolog": (
        "NPU.npu_mla_prolog", "NPU.npu_mla_prolog_v2", "NPU.npu_mla_prolog_v3", "NPU.npu_mla_prolog_v3_functional",
    ),
    "caches.normalized_caches": (
        "NPU.npu_dequant_rope_quant_kvcache", "NPU.npu_kv_rmsnorm_rope_cache", "NPU.npu_kv_rmsnorm_rope_cache_v2",
        "NPU.npu_kv_rmsnorm_rope_cache_v2_functional", "NPU.npu_qkv_rms_norm_rope_cache",
        "NPU.npu_qkv_rms_norm_rope_cache_functional", "NPU.npu_rope_quant_kvcache",
    ),
    "caches.paged_caches": (
        "NPU.npu_advance_step_flashattn", "NPU.npu_gather_pa_kv_cache", "NPU.npu_gather_pa_kv_cache_functional",
        "NPU.npu_scatter_pa_cache", "NPU.npu_scatter_pa_kv_cache", "NPU.npu_scatter_pa_kv_cache_functional",
    ),
    "experts.moe": (
        "NPU.npu_moe_gating_top_k", "NPU.npu_moe_gating_top_k_backward", "NPU.npu_moe_gating_top_k_softmax",
        "NPU.npu_moe_gating_top_k_softmax_v2", "NPU.npu_moe_update_expert",
    ),
    "experts.moe_routing": (
        "NPU._npu_moe_token_unpermute", "NPU._npu_moe_token_unpermute_with_routing_map",
        "NPU.npu_moe_compute_expert_tokens", "NPU.npu_moe_finalize_routing", "NPU.npu_moe_init_routing",
        "NPU.npu_moe_init_routing_v2", "NPU.npu_moe_re_routing", "NPU.npu_moe_token_permute",
        "NPU.npu_moe_token_permute_with_routing_map", "NPU.npu_moe_token_unpermute",
        "NPU.npu_moe_token_unpermute_with_routing_map",
    ),
    "experts.routing_gradients": (
        "Aten.npu_moe_token_permute_grad", "Aten.npu_moe_token_permute_grad_v2",
        "Aten.npu_moe_token_permute_with_routing_map_grad", "Aten.npu_moe_token_unpermute_grad",
        "Aten.npu_moe_token_unpermute_grad_v2", "Aten.npu_moe_token_unpermute_with_routing_map_grad",
    ),
    "layers.activation": (
        "Aten.npu_fast_gelu_backward", "Aten.npu_geglu_grad", "Aten.npu_gelu_backward", "Aten.npu_mish_backward",
        "Aten.npu_scaled_masked_softmax_backward", "Aten.npu_silu_backward", "Aten.npu_swiglu_backward",
        "NPU.fast_gelu", "NPU.npu_clipped_swiglu", "NPU.npu_fast_gelu", "NPU.npu_geglu", "NPU.npu_gelu",
        "NPU.npu_gelu_mul", "NPU.npu_mish", "NPU.npu_scaled_masked_softmax", "NPU.npu_silu", "NPU.npu_silu_",
        "NPU.npu_swiglu",
    ),
    "layers.convolution": (
        "Aten.npu_conv2d_backward", "Aten.npu_conv3d_backward", "Aten.npu_conv_transpose2d_backward",
        "Aten.npu_conv_transpose3d_backward", "Aten.npu_convolution_backward",
        "Aten.npu_convolution_transpose_backward", "Aten.npu_deformable_conv2dbk", "NPU.npu_conv2d",
        "NPU.npu_conv3d", "NPU.npu_conv_transpose2d", "NPU.npu_convolution", "NPU.npu_convolution_transpose",
        "NPU.npu_deformable_conv2d",
    ),
    "layers.drawn_results": (
        "Aten.npu_dropout_backward", "NPU._npu_dropout", "NPU._npu_dropout_gen_mask", "NPU.npu_dropout_do_mask",
        "NPU.npu_dropout_gen_mask", "NPU.npu_random_choice_with_mask", "NPU.npu_sim_exponential_",
        "NPU.npu_sub_sample", "NPU.npu_top_k_top_p", "NPU.npu_top_k_top_p_sample",
    ),
    "layers.normalization": (
        "Aten.npu_add_layer_norm_backward", "Aten.npu_deep_norm_backward", "Aten.npu_group_norm_swish_grad",
        "Aten.npu_layernorm_grad", "Aten.npu_renorm_backward", "Aten.npu_rms_norm_backward",
        "NPU.npu_add_layer_norm", "NPU.npu_add_rms_norm", "NPU.npu_add_rms_norm_cast", "NPU.npu_add_rms_norm_v2",
        "NPU.npu_add_rms_norm_v2_functional", "NPU.npu_deep_norm", "NPU.npu_gemma_rms_norm",
        "NPU.npu_group_norm_silu", "NPU.npu_group_norm_swish", "NPU.npu_layer_norm_eval", "NPU.npu_normalize_batch",
        "NPU.npu_rms_norm",
    ),
    "layers.rotary": (
        "Aten.npu_rotary_mul_backward", "NPU.npu_apply_rotary_pos_emb", "NPU.npu_interleave_rope", "NPU.npu_mrope",
        "NPU.npu_rotary_mul",
    ),
    "layers.training": (
        "Aten.npu_binary_cross_entropy_with_logits_backward", "Aten.npu_cross_entropy_loss_backward",
        "Aten.npu_softmax_cross_entropy_with_logits_backward", "NPU.npu_apply_adam", "NPU.npu_apply_adam_w",
        "NPU.npu_bert_apply_adam", "NPU.npu_cross_entropy_loss", "NPU.npu_softmax_cross_entropy_with_logits",
    ),
    "matmul.fused_layers": (
        "NPU.npu_fused_cross_entropy_loss_with_max_sum",
        "NPU.npu_fused_linear_cross_entropy_loss_with_max_sum_backward", "NPU.npu_fused_linear_online_max_sum",
        "NPU.npu_grouped_matmul_finalize_routing", "NPU.npu_grouped_matmul_swiglu_quant",
        "NPU.npu_grouped_matmul_swiglu_quant_v2", "NPU.npu_quant_grouped_matmul_dequant",
    ),
    "matmul.grouped_matmul": (
        "NPU.npu_add_quant_gmm", "NPU.npu_add_quant_gmm_", "NPU.npu_add_quant_matmul", "NPU.npu_add_quant_matmul_",
        "NPU.npu_grouped_matmul", "NPU.npu_grouped_matmul_add", "NPU.npu_grouped_matmul_add_",
    ),
    "matmul.permuted_matmul": (
        "Aten.matmul_backward", "Aten.npu_bmm_v2_mat1_backward", "Aten.npu_bmm_v2_mat2_backward",
        "Aten.npu_linear_backward", "NPU.npu_batch_gather_matmul", "NPU.npu_batch_gather_matmul_", "NPU.npu_bmmV2",
        "NPU.npu_fused_matmul", "NPU.npu_linear", "NPU.npu_transpose_batchmatmul",
        "NPU.npu_transpose_quant_batchmatmul",
    ),
    "matmul.quantized_matmul": (
        "NPU.npu_ffn", "NPU.npu_quant_matmul", "NPU.npu_quant_matmul_dequant", "NPU.npu_quant_matmul_gelu",
        "NPU.npu_quant_matmul_reduce_sum", "NPU.npu_weight_quant_batchmatmul",
    ),
    "quantization.microscaling": (
        "NPU.npu_dynamic_block_quant", "NPU.npu_grouped_dynamic_block_quant", "NPU.npu_kronecker_quant",
        "NPU.npu_quant_max", "NPU.npu_rotate_quant",
    ),
    "quantization.mx_quantization": (
        "NPU._npu_swiglu_backward_mx_quant_with_dual_axis", "NPU.npu_anti_mx_quant",
        "NPU.npu_dual_level_quant_matmul", "NPU.npu_dynamic_block_mx_quant", "NPU.npu_dynamic_dual_level_mx_quant",
        "NPU.npu_dynamic_mx_quant", "NPU.npu_dynamic_mx_quant_with_dual_axis", "NPU.npu_grouped_dynamic_mx_quant",
        "NPU.npu_swiglu_mx_quant", "NPU.npu_swiglu_mx_quant_with_dual_axis",
    ),
    "quantization.quantization": (
        "NPU.npu_anti_quant", "NPU.npu_dynamic_quant", "NPU.npu_dynamic_quant_asymmetric", "NPU.npu_group_quant",
        "NPU.npu_ifmr", "NPU.npu_moe_init_routing_quant", "NPU.npu_quantize",
    ),
    "quantization.quantized_activations": (
        "NPU.npu_dequant_swiglu_quant", "NPU.npu_gelu_quant", "NPU.npu_swiglu_group_quant",
        "NPU.npu_swiglu_group_quant_backward", "NPU.npu_swiglu_quant",
    ),
    "quantization.quantized_layers": (
        "NPU._npu_rms_norm_backward_quant", "NPU.npu_add_rms_norm_dynamic_mx_quant",
        "NPU.npu_add_rms_norm_dynamic_quant", "NPU.npu_add_rms_norm_quant", "NPU.npu_convert_weight_to_int4pack",
        "NPU.npu_dequant_bias", "NPU.npu_quant_conv2d", "NPU.npu_quant_scatter", "NPU.npu_quant_scatter_",
        "NPU.npu_rms_norm_dynamic_mx_quant", "NPU.npu_rms_norm_quant", "NPU.npu_rms_norm_quant_v2",
        "NPU.npu_trans_quant_param", "NPU.npu_weight_quant_preprocess",
    ),
    "recurrent.causal_conv": (
        "Aten.npu_masked_causal_conv1d_backward", "NPU.npu_fused_causal_conv1d", "NPU.npu_fused_causal_conv1d_v2",
        "NPU.npu_masked_causal_conv1d",
    ),
    "recurrent.gated_states": (
        "Aten.npu_gru_backward", "NPU.npu_chunk_gated_delta_rule", "NPU.npu_gru",
        "NPU.npu_recurrent_gated_delta_rule", "NPU.npu_recurrent_gated_delta_rule_functional",
    ),
    "recurrent.hyper_connections": (
        "Aten.npu_mhc_post_backward", "Aten.npu_mhc_pre_backward", "NPU.npu_mhc_post", "NPU.npu_mhc_pre",
        "NPU.npu_mhc_sinkhorn",
    ),
    "recurrent.lstm": (
        "Aten._lstm_npu_backward", "Aten.npu_lstm_backward", "Aten.npu_lstm_cell_backward",
        "Aten.npu_lstm_data_backward", "NPU._lstm_npu", "NPU.npu_lstm", "NPU.npu_lstm_cell", "NPU.npu_lstm_data",
    ),
    "sparse_attention.block_sparse_attention": (
        "Aten.npu_block_sparse_attention_backward", "Aten.npu_fused_floyd_attention_backward",
        "Aten.npu_nsa_select_attention_grad", "NPU.npu_block_sparse_attention", "NPU.npu_fused_floyd_attention",
        "NPU.npu_nsa_select_attention", "NPU.npu_nsa_select_attention_infer",
    ),
    "sparse_attention.indexer_losses": (
        "NPU.npu_dense_lightning_indexer_grad_kl_loss", "NPU.npu_dense_lightning_indexer_softmax_lse",
        "NPU.npu_sparse_lightning_indexer_grad_kl_loss",
    ),
    "sparse_attention.lightning_indexer": (
        "Aten.npu_lightning_indexer_grad", "NPU.npu_lightning_indexer", "NPU.npu_quant_lightning_indexer",
    ),
    "sparse_attention.nsa_compressed_attention": (
        "Aten.npu_nsa_compress_grad", "NPU.npu_nsa_compress", "NPU.npu_nsa_compress_attention",
        "NPU.npu_nsa_compress_attention_infer", "NPU.npu_nsa_compress_infer",
    ),
    "sparse_attention.sparse_flash_attention": (
        "Aten.npu_sparse_flash_attention_grad", "NPU.npu_kv_quant_sparse_flash_attention",
        "NPU.npu_sparse_flash_attention",
    ),
    "tensors.layout": (
        "Aten._npu_dtype_cast", "Aten._npu_dtype_cast_backward", "Aten._npu_format_cast",
        "Aten.npu_confusion_transpose_backward", "Aten.npu_dtype_cast_backward", "Aten.npu_gather_backward",
        "Aten.npu_gather_sparse_index_backward", "Aten.npu_max_backward", "Aten.npu_min_backward",
        "NPU.npu_broadcast", "NPU.npu_confusion_transpose", "NPU.npu_dtype_cast", "NPU.npu_dtype_cast_",
        "NPU.npu_format_cast", "NPU.npu_format_cast_", "NPU.npu_indexing", "NPU.npu_max", "NPU.npu_min",
        "NPU.npu_one_hot", "NPU.npu_reshape", "NPU.npu_sign_bits_pack", "NPU.npu_sign_bits_unpack", "NPU.npu_slice",
        "NPU.npu_sort_v2", "NPU.npu_transpose", "NPU.one_",
    ),
    "tensors.placement": (
        "Aten._npu_index_add", "Aten._npu_index_add_", "NPU.npu_alloc_float_status", "NPU.npu_gather_sparse_index",
        "NPU.npu_masked_fill_range", "NPU.npu_pad", "NPU.npu_scatter", "NPU.npu_scatter_list",
        "NPU.npu_scatter_list_", "NPU.npu_scatter_nd_update", "NPU.npu_scatter_nd_update_", "NPU.npu_stride_add",
        "NPU.npu_stride_copy", "NPU.npu_view_copy", "NPU.scatter_update", "NPU.scatter_update_",
    ),
}  # fmt: skip
