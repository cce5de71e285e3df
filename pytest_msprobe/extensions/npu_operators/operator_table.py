"""Table of operators with golden definitions, and their modules; nothing here imports torch."""

from __future__ import annotations

#: Module below ``references`` -> the operators it defines, by the API type under which a dump records them.
DEFINED: dict[str, dict[str, tuple[str, ...]]] = {
    "attention.attention": {
        "NPU": ("npu_fusion_attention",),
        "Aten": ("npu_fusion_attention_grad", "npu_fusion_attention_grad_v2", "npu_fusion_attention_grad_v3"),
    },
    "attention.attention_variants": {
        "NPU": (
            "npu_attention_update",
            "npu_attn_softmax_",
            "npu_attn_softmax_backward_",
            "npu_dropout_with_add_softmax",
            "npu_fusion_attention_v2",
            "npu_fusion_attention_v3",
            "npu_masked_softmax_with_rel_pos_bias",
            "npu_ring_attention_update",
        ),
        "Aten": ("npu_dropout_with_add_softmax_backward",),
    },
    "attention.inference_attention": {
        "NPU": (
            "npu_fused_infer_attention_score",
            "npu_fused_infer_attention_score_v2",
            "npu_incre_flash_attention",
            "npu_prompt_flash_attention",
        )
    },
    "attention.legacy_attention": {
        "NPU": (
            "npu_fused_attention_layernorm_qkv_fwd",
            "npu_fused_attention_qkv_grad",
            "npu_fused_attention_score",
            "npu_fused_attention_score_fwd",
            "npu_fused_attention_score_grad",
            "npu_multi_head_attention",
        ),
        "Aten": ("npu_fused_attention_score_backward", "npu_multi_head_attention_backward"),
    },
    "boxes.box_coding": {
        "NPU": (
            "npu_anchor_response_flags",
            "npu_bounding_box_decode",
            "npu_bounding_box_encode",
            "npu_grid_assign_positive",
            "npu_rotated_box_decode",
            "npu_rotated_box_encode",
            "npu_yolo_boxes_encode",
        )
    },
    "boxes.box_overlap": {
        "NPU": ("npu_ciou", "npu_diou", "npu_giou", "npu_iou", "npu_ptiou", "npu_rotated_iou", "npu_rotated_overlaps"),
        "Aten": ("_npu_ciou", "npu_ciou_backward", "npu_diou_backward", "npu_giou_backward"),
    },
    "boxes.box_selection": {
        "NPU": (
            "npu_batch_nms",
            "npu_nms_rotated",
            "npu_nms_v4",
            "npu_nms_with_mask",
            "npu_ps_roi_pooling",
            "npu_roi_align",
            "npu_roi_alignbk",
        ),
        "Aten": ("npu_ps_roi_pooling_backward",),
    },
    "caches.atb_operators": {
        "NPU": (
            "_npu_paged_attention",
            "_npu_reshape_and_cache",
            "_npu_rotary_embedding",
            "atb._npu_paged_attention_v2",
            "atb.npu_paged_cache_load",
        )
    },
    "caches.mla_prolog": {
        "NPU": ("npu_mla_prolog", "npu_mla_prolog_v2", "npu_mla_prolog_v3", "npu_mla_prolog_v3_functional")
    },
    "caches.normalized_caches": {
        "NPU": (
            "npu_dequant_rope_quant_kvcache",
            "npu_kv_rmsnorm_rope_cache",
            "npu_kv_rmsnorm_rope_cache_v2",
            "npu_kv_rmsnorm_rope_cache_v2_functional",
            "npu_qkv_rms_norm_rope_cache",
            "npu_qkv_rms_norm_rope_cache_functional",
            "npu_rope_quant_kvcache",
        )
    },
    "caches.paged_caches": {
        "NPU": (
            "npu_advance_step_flashattn",
            "npu_gather_pa_kv_cache",
            "npu_gather_pa_kv_cache_functional",
            "npu_scatter_pa_cache",
            "npu_scatter_pa_kv_cache",
            "npu_scatter_pa_kv_cache_functional",
        )
    },
    "experts.moe": {
        "NPU": (
            "npu_moe_gating_top_k",
            "npu_moe_gating_top_k_backward",
            "npu_moe_gating_top_k_softmax",
            "npu_moe_gating_top_k_softmax_v2",
            "npu_moe_update_expert",
        )
    },
    "experts.moe_routing": {
        "NPU": (
            "_npu_moe_token_unpermute",
            "_npu_moe_token_unpermute_with_routing_map",
            "npu_moe_compute_expert_tokens",
            "npu_moe_finalize_routing",
            "npu_moe_init_routing",
            "npu_moe_init_routing_v2",
            "npu_moe_re_routing",
            "npu_moe_token_permute",
            "npu_moe_token_permute_with_routing_map",
            "npu_moe_token_unpermute",
            "npu_moe_token_unpermute_with_routing_map",
        )
    },
    "experts.routing_gradients": {
        "Aten": (
            "npu_moe_token_permute_grad",
            "npu_moe_token_permute_grad_v2",
            "npu_moe_token_permute_with_routing_map_grad",
            "npu_moe_token_unpermute_grad",
            "npu_moe_token_unpermute_grad_v2",
            "npu_moe_token_unpermute_with_routing_map_grad",
        )
    },
    "layers.activation": {
        "NPU": (
            "fast_gelu",
            "npu_clipped_swiglu",
            "npu_fast_gelu",
            "npu_geglu",
            "npu_gelu",
            "npu_gelu_mul",
            "npu_mish",
            "npu_scaled_masked_softmax",
            "npu_silu",
            "npu_silu_",
            "npu_swiglu",
        ),
        "Aten": (
            "npu_fast_gelu_backward",
            "npu_geglu_grad",
            "npu_gelu_backward",
            "npu_mish_backward",
            "npu_scaled_masked_softmax_backward",
            "npu_silu_backward",
            "npu_swiglu_backward",
        ),
    },
    "layers.convolution": {
        "NPU": (
            "npu_conv2d",
            "npu_conv3d",
            "npu_conv_transpose2d",
            "npu_convolution",
            "npu_convolution_transpose",
            "npu_deformable_conv2d",
        ),
        "Aten": (
            "npu_conv2d_backward",
            "npu_conv3d_backward",
            "npu_conv_transpose2d_backward",
            "npu_conv_transpose3d_backward",
            "npu_convolution_backward",
            "npu_convolution_transpose_backward",
            "npu_deformable_conv2dbk",
        ),
    },
    "layers.drawn_results": {
        "NPU": (
            "_npu_dropout",
            "_npu_dropout_gen_mask",
            "npu_dropout_do_mask",
            "npu_dropout_gen_mask",
            "npu_random_choice_with_mask",
            "npu_sim_exponential_",
            "npu_sub_sample",
            "npu_top_k_top_p",
            "npu_top_k_top_p_sample",
        ),
        "Aten": ("npu_dropout_backward",),
    },
    "layers.normalization": {
        "NPU": (
            "npu_add_layer_norm",
            "npu_add_rms_norm",
            "npu_add_rms_norm_cast",
            "npu_add_rms_norm_v2",
            "npu_add_rms_norm_v2_functional",
            "npu_deep_norm",
            "npu_gemma_rms_norm",
            "npu_group_norm_silu",
            "npu_group_norm_swish",
            "npu_layer_norm_eval",
            "npu_normalize_batch",
            "npu_rms_norm",
        ),
        "Aten": (
            "npu_add_layer_norm_backward",
            "npu_deep_norm_backward",
            "npu_group_norm_swish_grad",
            "npu_layernorm_grad",
            "npu_renorm_backward",
            "npu_rms_norm_backward",
        ),
    },
    "layers.rotary": {
        "NPU": ("npu_apply_rotary_pos_emb", "npu_interleave_rope", "npu_mrope", "npu_rotary_mul"),
        "Aten": ("npu_rotary_mul_backward",),
    },
    "layers.training": {
        "NPU": (
            "npu_apply_adam",
            "npu_apply_adam_w",
            "npu_bert_apply_adam",
            "npu_cross_entropy_loss",
            "npu_softmax_cross_entropy_with_logits",
        ),
        "Aten": (
            "npu_binary_cross_entropy_with_logits_backward",
            "npu_cross_entropy_loss_backward",
            "npu_softmax_cross_entropy_with_logits_backward",
        ),
    },
    "matmul.fused_layers": {
        "NPU": (
            "npu_fused_cross_entropy_loss_with_max_sum",
            "npu_fused_linear_cross_entropy_loss_with_max_sum_backward",
            "npu_fused_linear_online_max_sum",
            "npu_grouped_matmul_finalize_routing",
            "npu_grouped_matmul_swiglu_quant",
            "npu_grouped_matmul_swiglu_quant_v2",
            "npu_quant_grouped_matmul_dequant",
        )
    },
    "matmul.grouped_matmul": {
        "NPU": (
            "npu_add_quant_gmm",
            "npu_add_quant_gmm_",
            "npu_add_quant_matmul",
            "npu_add_quant_matmul_",
            "npu_grouped_matmul",
            "npu_grouped_matmul_add",
            "npu_grouped_matmul_add_",
        )
    },
    "matmul.permuted_matmul": {
        "NPU": (
            "npu_batch_gather_matmul",
            "npu_batch_gather_matmul_",
            "npu_bmmV2",
            "npu_fused_matmul",
            "npu_linear",
            "npu_transpose_batchmatmul",
            "npu_transpose_quant_batchmatmul",
        ),
        "Aten": ("matmul_backward", "npu_bmm_v2_mat1_backward", "npu_bmm_v2_mat2_backward", "npu_linear_backward"),
    },
    "matmul.quantized_matmul": {
        "NPU": (
            "npu_ffn",
            "npu_quant_matmul",
            "npu_quant_matmul_dequant",
            "npu_quant_matmul_gelu",
            "npu_quant_matmul_reduce_sum",
            "npu_weight_quant_batchmatmul",
        )
    },
    "quantization.microscaling": {
        "NPU": (
            "npu_dynamic_block_quant",
            "npu_grouped_dynamic_block_quant",
            "npu_kronecker_quant",
            "npu_quant_max",
            "npu_rotate_quant",
        )
    },
    "quantization.mx_quantization": {
        "NPU": (
            "_npu_swiglu_backward_mx_quant_with_dual_axis",
            "npu_anti_mx_quant",
            "npu_dual_level_quant_matmul",
            "npu_dynamic_block_mx_quant",
            "npu_dynamic_dual_level_mx_quant",
            "npu_dynamic_mx_quant",
            "npu_dynamic_mx_quant_with_dual_axis",
            "npu_grouped_dynamic_mx_quant",
            "npu_swiglu_mx_quant",
            "npu_swiglu_mx_quant_with_dual_axis",
        )
    },
    "quantization.quantization": {
        "NPU": (
            "npu_anti_quant",
            "npu_dynamic_quant",
            "npu_dynamic_quant_asymmetric",
            "npu_group_quant",
            "npu_ifmr",
            "npu_moe_init_routing_quant",
            "npu_quantize",
        )
    },
    "quantization.quantized_activations": {
        "NPU": (
            "npu_dequant_swiglu_quant",
            "npu_gelu_quant",
            "npu_swiglu_group_quant",
            "npu_swiglu_group_quant_backward",
            "npu_swiglu_quant",
        )
    },
    "quantization.quantized_layers": {
        "NPU": (
            "_npu_rms_norm_backward_quant",
            "npu_add_rms_norm_dynamic_mx_quant",
            "npu_add_rms_norm_dynamic_quant",
            "npu_add_rms_norm_quant",
            "npu_convert_weight_to_int4pack",
            "npu_dequant_bias",
            "npu_quant_conv2d",
            "npu_quant_scatter",
            "npu_quant_scatter_",
            "npu_rms_norm_dynamic_mx_quant",
            "npu_rms_norm_quant",
            "npu_rms_norm_quant_v2",
            "npu_trans_quant_param",
            "npu_weight_quant_preprocess",
        )
    },
    "recurrent.causal_conv": {
        "NPU": ("npu_fused_causal_conv1d", "npu_fused_causal_conv1d_v2", "npu_masked_causal_conv1d"),
        "Aten": ("npu_masked_causal_conv1d_backward",),
    },
    "recurrent.gated_states": {
        "NPU": (
            "npu_chunk_gated_delta_rule",
            "npu_gru",
            "npu_recurrent_gated_delta_rule",
            "npu_recurrent_gated_delta_rule_functional",
        ),
        "Aten": ("npu_gru_backward",),
    },
    "recurrent.hyper_connections": {
        "NPU": ("npu_mhc_post", "npu_mhc_pre", "npu_mhc_sinkhorn"),
        "Aten": ("npu_mhc_post_backward", "npu_mhc_pre_backward"),
    },
    "recurrent.lstm": {
        "NPU": ("_lstm_npu", "npu_lstm", "npu_lstm_cell", "npu_lstm_data"),
        "Aten": ("_lstm_npu_backward", "npu_lstm_backward", "npu_lstm_cell_backward", "npu_lstm_data_backward"),
    },
    "sparse_attention.block_sparse_attention": {
        "NPU": (
            "npu_block_sparse_attention",
            "npu_fused_floyd_attention",
            "npu_nsa_select_attention",
            "npu_nsa_select_attention_infer",
        ),
        "Aten": (
            "npu_block_sparse_attention_backward",
            "npu_fused_floyd_attention_backward",
            "npu_nsa_select_attention_grad",
        ),
    },
    "sparse_attention.indexer_losses": {
        "NPU": (
            "npu_dense_lightning_indexer_grad_kl_loss",
            "npu_dense_lightning_indexer_softmax_lse",
            "npu_sparse_lightning_indexer_grad_kl_loss",
        )
    },
    "sparse_attention.lightning_indexer": {
        "NPU": ("npu_lightning_indexer", "npu_quant_lightning_indexer"),
        "Aten": ("npu_lightning_indexer_grad",),
    },
    "sparse_attention.nsa_compressed_attention": {
        "NPU": (
            "npu_nsa_compress",
            "npu_nsa_compress_attention",
            "npu_nsa_compress_attention_infer",
            "npu_nsa_compress_infer",
        ),
        "Aten": ("npu_nsa_compress_grad",),
    },
    "sparse_attention.sparse_flash_attention": {
        "NPU": ("npu_kv_quant_sparse_flash_attention", "npu_sparse_flash_attention"),
        "Aten": ("npu_sparse_flash_attention_grad",),
    },
    "tensors.layout": {
        "NPU": (
            "npu_broadcast",
            "npu_confusion_transpose",
            "npu_dtype_cast",
            "npu_dtype_cast_",
            "npu_format_cast",
            "npu_format_cast_",
            "npu_indexing",
            "npu_max",
            "npu_min",
            "npu_one_hot",
            "npu_reshape",
            "npu_sign_bits_pack",
            "npu_sign_bits_unpack",
            "npu_slice",
            "npu_sort_v2",
            "npu_transpose",
            "one_",
        ),
        "Aten": (
            "_npu_dtype_cast",
            "_npu_dtype_cast_backward",
            "_npu_format_cast",
            "npu_confusion_transpose_backward",
            "npu_dtype_cast_backward",
            "npu_gather_backward",
            "npu_gather_sparse_index_backward",
            "npu_max_backward",
            "npu_min_backward",
        ),
    },
    "tensors.placement": {
        "NPU": (
            "npu_alloc_float_status",
            "npu_gather_sparse_index",
            "npu_masked_fill_range",
            "npu_pad",
            "npu_scatter",
            "npu_scatter_list",
            "npu_scatter_list_",
            "npu_scatter_nd_update",
            "npu_scatter_nd_update_",
            "npu_stride_add",
            "npu_stride_copy",
            "npu_view_copy",
            "scatter_update",
            "scatter_update_",
        ),
        "Aten": ("_npu_index_add", "_npu_index_add_"),
    },
}

#: The operators of torch_npu among them, by their names alone. Their definitions return None where nothing is promised.
FUSED_OPERATORS = frozenset(name for types in DEFINED.values() for names in types.values() for name in names)
