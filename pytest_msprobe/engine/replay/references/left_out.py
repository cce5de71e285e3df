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
    "the documentation gives no formula, or contradicts itself": (
        "npu_pad",
    ),
    "results jump to -inf where a sum of probabilities meets a bound, within rounding on either side": (
        "npu_top_k_top_p",
    ),
    "results are drawn, and nothing judges them yet": (
        "npu_random_choice_with_mask", "npu_sim_exponential_", "npu_sub_sample", "npu_top_k_top_p_sample",
    ),
    "not defined yet: attention over caches, sparse attention": (
        "_npu_flash_attention", "_npu_paged_attention", "_npu_reshape_and_cache", "_npu_rotary_embedding",
        "atb._npu_flash_attention_prefix_v2", "atb._npu_flash_attention_v2",
        "atb._npu_multi_head_latent_attention_get_workspace", "atb._npu_paged_attention_v2",
        "atb._npu_paged_attention_v2_get_workspace", "atb.npu_fused_add_topk_div", "atb.npu_mla_preprocess",
        "atb.npu_multi_head_latent_attention", "atb.npu_paged_cache_load", "atb.npu_ring_mla",
        "atb.npu_self_attention_prefix_encoder", "gather_pa_kv_cache", "npu_flash_attention",
        "npu_quant_fusion_attention",
    ),
    "not defined yet: their semantics were not established": (
        "npu_grouped_matmu", "npu_masked_fill_range", "npu_moe_finalize_routing_v2", "npu_rms_norm_dynamic_quant",
        "npu_scatter", "npu_stride_add",
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
        "_npu_dtype_cast_backward", "npu_dtype_cast_backward", "npu_gather_backward",
        "npu_gather_sparse_index_backward", "npu_max_backward", "npu_mhc_sinkhorn_backward", "npu_min_backward",
        "npu_quant_fusion_attention_backward",
    ),
    "not defined yet": (
        "_npu_distribute_barrier", "_npu_dropout_gen_mask", "_npu_dtype_cast", "_npu_format_cast", "_npu_index_add",
        "_npu_index_add_", "_npu_matmul_abft_verify", "_npu_silent_check", "_npu_silent_check_v2",
        "_npu_silent_check_v3", "npu_attention_worker_combine", "npu_change_data_ptr", "npu_dropout_gen_mask",
        "npu_ffn_worker_batching", "npu_hans_decode", "npu_hans_encode", "npu_matmul_compress_dequant",
        "npu_scatter_list", "npu_scatter_list_", "npu_stride_copy", "npu_view_copy",
    ),
}  # fmt: skip

_REASONS = {name: reason for reason, names in LEFT_OUT.items() for name in names}


def reason_left_out(operator: str) -> str | None:
    """Return why an operator has no golden definition, None where that is not known."""
    return _REASONS.get(operator)
