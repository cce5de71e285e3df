"""Which operators have a golden definition, and in which module; nothing here imports torch."""

from __future__ import annotations

#: Module below ``references`` -> the operators it defines, by the API type under which a dump records them.
DEFINED: dict[str, dict[str, tuple[str, ...]]] = {
    "attention.attention": {"NPU": ("npu_fusion_attention",), "Aten": ("npu_fusion_attention_grad",)},
    "attention.attention_gradients": {"Aten": ("npu_fusion_attention_grad_v2", "npu_fusion_attention_grad_v3")},
    "attention.attention_v2_v3": {
        "NPU": ("npu_attention_update", "npu_fusion_attention_v2", "npu_fusion_attention_v3")
    },
    "attention.inference_attention": {
        "NPU": ("npu_fused_infer_attention_score", "npu_incre_flash_attention", "npu_prompt_flash_attention")
    },
    "attention.ring_attention": {"NPU": ("npu_ring_attention_update",)},

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

    "sparse_attention.block_sparse_attention": {
        "NPU": ("npu_block_sparse_attention",), "Aten": ("npu_block_sparse_attention_backward",)
    },
    "sparse_attention.floyd_attention": {
        "NPU": ("npu_fused_floyd_attention",), "Aten": ("npu_fused_floyd_attention_backward",)
    },
    "sparse_attention.indexer_losses": {
        "NPU": (
            "npu_dense_lightning_indexer_grad_kl_loss", "npu_dense_lightning_indexer_softmax_lse",
            "npu_sparse_lightning_indexer_grad_kl_loss",
        ),
    },
    "sparse_attention.lightning_indexer": {
        "NPU": ("npu_lightning_indexer", "npu_quant_lightning_indexer"), "Aten": ("npu_lightning_indexer_grad",)
    },
    "sparse_attention.nsa_compressed_attention": {
        "NPU": ("npu_nsa_compress_attention", "npu_nsa_compress_attention_infer")
    },
    "sparse_attention.nsa_compression": {
        "NPU": ("npu_nsa_compress", "npu_nsa_compress_infer"), "Aten": ("npu_nsa_compress_grad",)
    },
    "sparse_attention.nsa_selected_attention": {
        "NPU": ("npu_nsa_select_attention", "npu_nsa_select_attention_infer"),
        "Aten": ("npu_nsa_select_attention_grad",),
    },
    "sparse_attention.sparse_flash_attention": {
        "NPU": ("npu_kv_quant_sparse_flash_attention", "npu_sparse_flash_attention"),
        "Aten": ("npu_sparse_flash_attention_grad",),
    },

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
