"""Operators of torch_npu that have no golden definition, by the reason; nothing here imports torch."""

from __future__ import annotations

#: Reason -> the operators that are skipped for it.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "they communicate: the other ranks' tensors are not in the record": (
        "npu_all_gather_base_mm", "npu_all_gather_quant_mm", "npu_all_to_all_matmul", "npu_all_to_all_quant_matmul",
        "npu_alltoallv_gmm", "npu_alltoallv_quant_gmm", "npu_attention_to_ffn", "npu_ffn_to_attention",
        "npu_gmm_alltoallv", "npu_matmul_all_to_all", "npu_mm_all_reduce_base", "npu_mm_reduce_scatter_base",
        "npu_moe_distribute_combine", "npu_moe_distribute_combine_add_rms_norm", "npu_moe_distribute_combine_setup",
        "npu_moe_distribute_combine_teardown", "npu_moe_distribute_combine_v2", "npu_moe_distribute_dispatch",
        "npu_moe_distribute_dispatch_setup", "npu_moe_distribute_dispatch_teardown", "npu_moe_distribute_dispatch_v2",
        "npu_quant_all_reduce", "npu_quant_gmm_alltoallv", "npu_quant_matmul_all_to_all",
        "npu_quant_mm_reduce_scatter", "npu_quant_reduce_scatter",
    ),
    "no formula is documented, or the documented results are not those of the formula": (





    ),
    "the documentation gives no formula, or contradicts itself": (
        "npu_bert_apply_adam", "npu_dropout_with_add_softmax", "npu_fused_attention_score",
        "npu_multi_head_attention", "npu_pad",
    ),
    "results jump to -inf where a sum of probabilities meets a bound, within rounding on either side": (
        "npu_top_k_top_p",
    ),
    "results are drawn, and nothing judges them yet": (
        "npu_random_choice_with_mask", "npu_sim_exponential_", "npu_sub_sample", "npu_top_k_top_p_sample",
    ),
    "numbers of 4 bits, shared exponents or packed scales": (
        "npu_add_rms_norm_dynamic_mx_quant", "npu_convert_weight_to_int4pack", "npu_dual_level_quant_matmul",
        "npu_dynamic_block_mx_quant", "npu_dynamic_block_quant", "npu_dynamic_dual_level_mx_quant",
        "npu_dynamic_mx_quant", "npu_dynamic_mx_quant_with_dual_axis", "npu_grouped_dynamic_block_quant",
        "npu_grouped_dynamic_mx_quant", "npu_kronecker_quant", "npu_rms_norm_dynamic_mx_quant", "npu_swiglu_mx_quant",
        "npu_trans_quant_param",
    ),
    "not defined yet: attention over caches, sparse attention": (
        "_npu_flash_attention", "_npu_paged_attention", "_npu_reshape_and_cache", "_npu_rotary_embedding",
        "atb._npu_flash_attention_prefix_v2", "atb._npu_flash_attention_v2",
        "atb._npu_multi_head_latent_attention_get_workspace", "atb._npu_paged_attention_v2",
        "atb._npu_paged_attention_v2_get_workspace", "atb.npu_fused_add_topk_div", "atb.npu_mla_preprocess",
        "atb.npu_multi_head_latent_attention", "atb.npu_paged_cache_load", "atb.npu_ring_mla",
        "atb.npu_self_attention_prefix_encoder", "gather_pa_kv_cache", "npu_advance_step_flashattn",
        "npu_block_sparse_attention", "npu_dense_lightning_indexer_grad_kl_loss",
        "npu_dense_lightning_indexer_softmax_lse", "npu_flash_attention", "npu_fused_floyd_attention",
        "npu_fused_infer_attention_score_v2", "npu_kv_quant_sparse_flash_attention", "npu_kv_rmsnorm_rope_cache",
        "npu_lightning_indexer", "npu_mla_prolog", "npu_mla_prolog_v2", "npu_mla_prolog_v3",
        "npu_quant_fusion_attention", "npu_quant_lightning_indexer", "npu_scatter_pa_cache",
        "npu_scatter_pa_kv_cache", "npu_sparse_flash_attention", "npu_sparse_lightning_indexer_grad_kl_loss",
    ),
    "not defined yet: their semantics were not established": (
        "npu_add_quant_gmm_", "npu_add_quant_matmul_", "npu_add_rms_norm_v2", "npu_deformable_conv2d",
        "npu_dequant_swiglu_quant", "npu_fused_causal_conv1d", "npu_fused_matmul", "npu_gelu_quant",
        "npu_grouped_matmu", "npu_grouped_matmul_add_", "npu_grouped_matmul_finalize_routing",
        "npu_grouped_matmul_swiglu_quant_v2", "npu_gru", "npu_ifmr", "npu_lstm", "npu_masked_fill_range",
        "npu_mhc_post", "npu_mhc_pre", "npu_mhc_sinkhorn", "npu_moe_finalize_routing_v2", "npu_moe_update_expert",
        "npu_normalize_batch", "npu_quant_matmul_gelu", "npu_quant_matmul_reduce_sum", "npu_quant_scatter",
        "npu_quant_scatter_", "npu_recurrent_gated_delta_rule", "npu_rms_norm_dynamic_quant", "npu_scatter",
        "npu_stride_add", "npu_transpose_quant_batchmatmul",
    ),
    "no computation on the values of tensors": (
        "copy_memory_", "empty_with_swapped_memory", "erase_stream", "get_device_limit", "get_stream_limit",
        "matmul_checksum", "npu_alloc_float_status", "npu_clear_float_status", "npu_get_float_status", "npu_prefetch",
        "reset_stream_limit", "save_npugraph_tensor", "set_device_limit", "set_stream_limit",
    ),
    "it returns shapes or the size of a workspace, and computes no values": (
        "_npu_fused_infer_attention_score_get_max_workspace", "_npu_fused_infer_attention_score_infer_output",
        "_npu_fused_infer_attention_score_v2_get_max_workspace", "_npu_fused_infer_attention_score_v2_infer_output",
        "_npu_fusion_attention_grad_v3_get_max_workspace", "_npu_fusion_attention_grad_v3_infer_output",
        "_npu_fusion_attention_v3_get_max_workspace", "_npu_fusion_attention_v3_infer_output",
    ),
    "its gradient is judged with the call that it belongs to: record at level L1 or mix": (
        "_npu_dtype_cast_backward", "npu_add_layer_norm_backward", "npu_attn_softmax_backward_",
        "npu_binary_cross_entropy_with_logits_backward", "npu_block_sparse_attention_backward",
        "npu_bmm_v2_mat1_backward", "npu_bmm_v2_mat2_backward", "npu_conv2d_backward",
        "npu_conv3d_backward", "npu_conv_transpose2d_backward", "npu_conv_transpose3d_backward",
        "npu_convolution_backward", "npu_convolution_transpose_backward", "npu_cross_entropy_loss_backward",
        "npu_deep_norm_backward", "npu_deformable_conv2dbk", "npu_dropout_backward",
        "npu_dropout_with_add_softmax_backward", "npu_dtype_cast_backward", "npu_fused_attention_qkv_grad",
        "npu_fused_attention_score_backward", "npu_fused_attention_score_grad", "npu_fused_floyd_attention_backward",
        "npu_fused_linear_cross_entropy_loss_with_max_sum_backward", "npu_fusion_attention_grad_v2",
        "npu_fusion_attention_grad_v3", "npu_gather_backward", "npu_gather_sparse_index_backward", "npu_geglu_grad",
        "npu_gelu_backward", "npu_group_norm_swish_grad", "npu_gru_backward",
        "npu_layernorm_grad", "npu_lightning_indexer_grad", "npu_lstm_backward", "npu_lstm_cell_backward",
        "npu_lstm_data_backward", "npu_masked_causal_conv1d_backward", "npu_max_backward", "npu_mhc_post_backward",
        "npu_mhc_pre_backward", "npu_mhc_sinkhorn_backward", "npu_min_backward", "npu_mish_backward",
        "npu_moe_gating_top_k_backward", "npu_moe_token_permute_grad", "npu_moe_token_permute_grad_v2",
        "npu_moe_token_permute_with_routing_map_grad", "npu_moe_token_unpermute_grad",
        "npu_moe_token_unpermute_grad_v2", "npu_moe_token_unpermute_with_routing_map_grad",
        "npu_multi_head_attention_backward", "npu_nsa_compress_grad", "npu_nsa_select_attention_grad",
        "npu_quant_fusion_attention_backward", "npu_renorm_backward",
        "npu_silu_backward", "npu_softmax_cross_entropy_with_logits_backward", "npu_sparse_flash_attention_grad",
        "npu_swiglu_group_quant_backward",
    ),
    "not defined yet": (
        "_npu_distribute_barrier", "_npu_dropout", "_npu_dropout_gen_mask", "_npu_dtype_cast",
        "_npu_format_cast", "_npu_index_add", "_npu_index_add_", "_npu_matmul_abft_verify",
        "_npu_moe_token_unpermute", "_npu_moe_token_unpermute_with_routing_map", "_npu_rms_norm_backward_quant",
        "_npu_silent_check", "_npu_silent_check_v2", "_npu_silent_check_v3",
        "_npu_swiglu_backward_mx_quant_with_dual_axis", "npu_add_layer_norm", "npu_add_quant_gmm",
        "npu_add_quant_matmul", "npu_add_rms_norm_cast", "npu_add_rms_norm_v2_functional", "npu_anti_mx_quant",
        "npu_attention_worker_combine", "npu_attn_softmax_", "npu_batch_gather_matmul", "npu_batch_gather_matmul_",
        "npu_change_data_ptr", "npu_chunk_gated_delta_rule", "npu_dequant_bias", "npu_dequant_rope_quant_kvcache",
        "npu_dropout_do_mask", "npu_dropout_gen_mask", "npu_ffn_worker_batching",
        "npu_fused_attention_layernorm_qkv_fwd", "npu_fused_attention_score_fwd", "npu_fused_causal_conv1d_v2",
        "npu_fused_cross_entropy_loss_with_max_sum", "npu_fused_linear_online_max_sum", "npu_gather_pa_kv_cache",
        "npu_gather_pa_kv_cache_functional", "npu_gemma_rms_norm", "npu_grouped_matmul_add",
        "npu_grouped_matmul_swiglu_quant", "npu_hans_decode", "npu_hans_encode", "npu_kv_rmsnorm_rope_cache_v2",
        "npu_kv_rmsnorm_rope_cache_v2_functional", "npu_lstm_cell", "npu_lstm_data", "npu_masked_causal_conv1d",
        "npu_masked_softmax_with_rel_pos_bias", "npu_matmul_compress_dequant", "npu_mla_prolog_v3_functional",
        "npu_moe_gating_top_k_softmax_v2", "npu_moe_init_routing_quant", "npu_nsa_compress",
        "npu_nsa_compress_attention", "npu_nsa_compress_attention_infer", "npu_nsa_compress_infer",
        "npu_nsa_select_attention", "npu_nsa_select_attention_infer", "npu_qkv_rms_norm_rope_cache",
        "npu_qkv_rms_norm_rope_cache_functional", "npu_quant_conv2d", "npu_quant_grouped_matmul_dequant",
        "npu_quant_matmul_dequant", "npu_quant_max", "npu_recurrent_gated_delta_rule_functional",
        "npu_ring_attention_update", "npu_rms_norm_quant_v2", "npu_rope_quant_kvcache", "npu_rotate_quant",
        "npu_scatter_list", "npu_scatter_list_", "npu_scatter_pa_kv_cache_functional", "npu_stride_copy",
        "npu_swiglu_group_quant", "npu_swiglu_mx_quant_with_dual_axis", "npu_view_copy",
        "npu_weight_quant_preprocess",
    ),
}  # fmt: skip

_REASONS = {name: reason for reason, names in LEFT_OUT.items() for name in names}


def reason_left_out(operator: str) -> str | None:
    """Return why an operator has no golden definition, None where that is not known."""
    return _REASONS.get(operator)
