"""Which operators have a golden definition, and in which module; nothing here imports torch."""

from __future__ import annotations

#: Module below ``references`` -> the operators it defines, by the API type under which a dump records them.
DEFINED: dict[str, dict[str, tuple[str, ...]]] = {
    "attention.attention": {"NPU": ("npu_fusion_attention",), "Aten": ("npu_fusion_attention_grad",)},
    "attention.attention_v2_v3": {
        "NPU": ("npu_attention_update", "npu_fusion_attention_v2", "npu_fusion_attention_v3")
    },
    "attention.inference_attention": {
        "NPU": ("npu_fused_infer_attention_score", "npu_incre_flash_attention", "npu_prompt_flash_attention")
    },

    "attention.fused_softmax": {
        "NPU": (
            "npu_attn_softmax_", "npu_attn_softmax_backward_", "npu_dropout_with_add_softmax",
            "npu_masked_softmax_with_rel_pos_bias",
        ),
        "Aten": ("npu_dropout_with_add_softmax_backward",),
    },
    "attention.legacy_attention": {
        "NPU": (
            "npu_fused_attention_layernorm_qkv_fwd", "npu_fused_attention_qkv_grad", "npu_fused_attention_score",
            "npu_fused_attention_score_fwd", "npu_fused_attention_score_grad",
        ),
        "Aten": ("npu_fused_attention_score_backward",),
    },
    "attention.multi_head_attention": {
        "NPU": ("npu_multi_head_attention",), "Aten": ("npu_multi_head_attention_backward",)
    },

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
    "layers.bert_adam": {"NPU": ("npu_bert_apply_adam",)},
    "layers.convolution": {
        "NPU": ("npu_conv2d", "npu_conv3d", "npu_conv_transpose2d", "npu_convolution", "npu_convolution_transpose")
    },
    "layers.deformable_convolution": {"NPU": ("npu_deformable_conv2d",), "Aten": ("npu_deformable_conv2dbk",)},
    "layers.drawn_choices": {"NPU": ("npu_random_choice_with_mask", "npu_sim_exponential_", "npu_sub_sample")},
    "layers.dropout_mask": {
        "NPU": ("_npu_dropout", "_npu_dropout_gen_mask", "npu_dropout_do_mask", "npu_dropout_gen_mask"),
        "Aten": ("npu_dropout_backward",),
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
    "layers.sequence_normalization": {"NPU": ("npu_normalize_batch",)},
    "layers.sampled_tokens": {"NPU": ("npu_top_k_top_p", "npu_top_k_top_p_sample")},

    "quantization.calibration": {"NPU": ("npu_ifmr",)},
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

    "recurrent.causal_conv": {
        "NPU": ("npu_fused_causal_conv1d", "npu_fused_causal_conv1d_v2", "npu_masked_causal_conv1d"),
        "Aten": ("npu_masked_causal_conv1d_backward",),
    },
    "recurrent.delta_rule": {
        "NPU": (
            "npu_chunk_gated_delta_rule", "npu_recurrent_gated_delta_rule",
            "npu_recurrent_gated_delta_rule_functional",
        ),
    },
    "recurrent.gru": {"NPU": ("npu_gru",), "Aten": ("npu_gru_backward",)},
    "recurrent.hyper_connections": {
        "NPU": ("npu_mhc_post", "npu_mhc_pre", "npu_mhc_sinkhorn"),
        "Aten": ("npu_mhc_post_backward", "npu_mhc_pre_backward"),
    },
    "recurrent.lstm_layers": {
        "NPU": ("npu_lstm", "npu_lstm_cell", "npu_lstm_data"),
        "Aten": ("npu_lstm_backward", "npu_lstm_cell_backward", "npu_lstm_data_backward"),
    },
    "recurrent.lstm_stack": {"NPU": ("_lstm_npu",), "Aten": ("_lstm_npu_backward",)},

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
