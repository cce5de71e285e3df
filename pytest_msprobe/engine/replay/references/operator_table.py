"""Which operators have a golden definition, and in which module; nothing here imports torch."""

from __future__ import annotations

#: Module below ``references`` -> the operators it defines, by the API type under which a dump records them.
DEFINED: dict[str, dict[str, tuple[str, ...]]] = {
    "attention.attention": {"NPU": ("npu_fusion_attention",), "Aten": ("npu_fusion_attention_grad",)},
    "attention.attention_v2_v3": {
        "NPU": ("npu_attention_update", "npu_fusion_attention_v2", "npu_fusion_attention_v3")
    },
    "attention.fused_infer_attention": {
        "NPU": ("npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2")
    },
    "attention.inference_attention": {"NPU": ("npu_incre_flash_attention", "npu_prompt_flash_attention")},

    "caches.atb_operators": {
        "NPU": (
            "_npu_paged_attention", "_npu_reshape_and_cache", "_npu_rotary_embedding", "atb._npu_paged_attention_v2",
            "atb.npu_paged_cache_load",
        ),
    },
    "caches.decode_step": {"NPU": ("npu_advance_step_flashattn",)},
    "caches.mla_prolog": {
        "NPU": ("npu_mla_prolog", "npu_mla_prolog_v2", "npu_mla_prolog_v3", "npu_mla_prolog_v3_functional")
    },
    "caches.normalized_caches": {
        "NPU": (
            "npu_kv_rmsnorm_rope_cache", "npu_kv_rmsnorm_rope_cache_v2", "npu_kv_rmsnorm_rope_cache_v2_functional",
            "npu_qkv_rms_norm_rope_cache", "npu_qkv_rms_norm_rope_cache_functional",
        ),
    },
    "caches.paged_caches": {
        "NPU": (
            "npu_gather_pa_kv_cache", "npu_gather_pa_kv_cache_functional", "npu_scatter_pa_cache",
            "npu_scatter_pa_kv_cache", "npu_scatter_pa_kv_cache_functional",
        ),
    },
    "caches.rope_quant_caches": {"NPU": ("npu_dequant_rope_quant_kvcache", "npu_rope_quant_kvcache")},

    "experts.grouped_matmul": {"NPU": ("npu_ffn", "npu_grouped_matmul")},
    "experts.moe": {"NPU": ("npu_moe_gating_top_k", "npu_moe_gating_top_k_softmax")},
    "experts.moe_routing": {
        "NPU": (
            "npu_moe_compute_expert_tokens", "npu_moe_finalize_routing", "npu_moe_init_routing",
            "npu_moe_init_routing_v2", "npu_moe_re_routing", "npu_moe_token_permute",
            "npu_moe_token_permute_with_routing_map", "npu_moe_token_unpermute",
            "npu_moe_token_unpermute_with_routing_map",
        ),
    },

    "layers.activation": {
        "NPU": (
            "fast_gelu", "npu_clipped_swiglu", "npu_fast_gelu", "npu_geglu", "npu_gelu", "npu_gelu_mul", "npu_mish",
            "npu_scaled_masked_softmax", "npu_silu", "npu_silu_", "npu_swiglu",
        ),
        "Aten": ("npu_fast_gelu_backward", "npu_scaled_masked_softmax_backward", "npu_swiglu_backward"),
    },
    "layers.convolution": {
        "NPU": ("npu_conv2d", "npu_conv3d", "npu_conv_transpose2d", "npu_convolution", "npu_convolution_transpose")
    },
    "layers.linear": {
        "NPU": ("npu_bmmV2", "npu_linear", "npu_transpose_batchmatmul"),
        "Aten": ("matmul_backward", "npu_linear_backward"),
    },
    "layers.loss": {"NPU": ("npu_cross_entropy_loss", "npu_softmax_cross_entropy_with_logits")},
    "layers.normalization": {
        "NPU": (
            "npu_add_rms_norm", "npu_deep_norm", "npu_group_norm_silu", "npu_group_norm_swish", "npu_layer_norm_eval",
            "npu_rms_norm",
        ),
        "Aten": ("npu_rms_norm_backward",),
    },
    "layers.optimizer": {"NPU": ("npu_apply_adam", "npu_apply_adam_w")},
    "layers.rotary": {
        "NPU": ("npu_apply_rotary_pos_emb", "npu_interleave_rope", "npu_mrope", "npu_rotary_mul"),
        "Aten": ("npu_rotary_mul_backward",),
    },

    "quantization.quantization": {
        "NPU": (
            "npu_anti_quant", "npu_dynamic_quant", "npu_dynamic_quant_asymmetric", "npu_group_quant", "npu_quantize",
        ),
    },
    "quantization.quantized_layers": {
        "NPU": (
            "npu_add_rms_norm_dynamic_quant", "npu_add_rms_norm_quant", "npu_rms_norm_quant", "npu_swiglu_quant",
        ),
    },
    "quantization.quantized_matmul": {"NPU": ("npu_quant_matmul", "npu_weight_quant_batchmatmul")},

    "tensors.layout": {
        "NPU": (
            "npu_broadcast", "npu_confusion_transpose", "npu_dtype_cast", "npu_dtype_cast_", "npu_format_cast",
            "npu_format_cast_", "npu_indexing", "npu_max", "npu_min", "npu_one_hot", "npu_reshape",
            "npu_sign_bits_pack", "npu_sign_bits_unpack", "npu_slice", "npu_sort_v2", "npu_transpose", "one_",
        ),
        "Aten": ("npu_confusion_transpose_backward",),
    },
    "tensors.scatter": {
        "NPU": (
            "npu_gather_sparse_index", "npu_scatter_nd_update", "npu_scatter_nd_update_", "scatter_update",
            "scatter_update_",
        ),
    },
}  # fmt: skip
