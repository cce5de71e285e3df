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

    "boxes.box_coding": {
        "NPU": (
            "npu_anchor_response_flags", "npu_bounding_box_decode", "npu_bounding_box_encode",
            "npu_grid_assign_positive", "npu_rotated_box_decode", "npu_rotated_box_encode", "npu_yolo_boxes_encode",
        )
    },
    "boxes.box_overlap": {
        "NPU": ("npu_ciou", "npu_diou", "npu_giou", "npu_iou", "npu_ptiou"),
        "Aten": ("_npu_ciou", "npu_ciou_backward", "npu_diou_backward", "npu_giou_backward"),
    },
    "boxes.region_pooling": {
        "NPU": ("npu_ps_roi_pooling", "npu_roi_align", "npu_roi_alignbk"),
        "Aten": ("npu_ps_roi_pooling_backward",),
    },
    "boxes.rotated_overlap": {"NPU": ("npu_rotated_iou", "npu_rotated_overlaps")},
    "boxes.suppression": {"NPU": ("npu_batch_nms", "npu_nms_rotated", "npu_nms_v4", "npu_nms_with_mask")},

    "experts.expert_balance": {"NPU": ("npu_moe_update_expert",)},
    "experts.moe": {
        "NPU": (
            "npu_moe_gating_top_k", "npu_moe_gating_top_k_backward", "npu_moe_gating_top_k_softmax",
            "npu_moe_gating_top_k_softmax_v2",
        ),
        "Aten": ("npu_moe_gating_top_k_backward",),
    },
    "experts.routing_for_gradients": {
        "NPU": ("_npu_moe_token_unpermute", "_npu_moe_token_unpermute_with_routing_map"),
        "Aten": ("_npu_moe_token_unpermute", "_npu_moe_token_unpermute_with_routing_map"),
    },
    "experts.routing_gradients": {
        "Aten": (
            "npu_moe_token_permute_grad", "npu_moe_token_permute_grad_v2",
            "npu_moe_token_permute_with_routing_map_grad", "npu_moe_token_unpermute_grad",
            "npu_moe_token_unpermute_grad_v2", "npu_moe_token_unpermute_with_routing_map_grad",
        ),
    },
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
    "layers.activation_gradients": {
        "Aten": ("npu_geglu_grad", "npu_gelu_backward", "npu_mish_backward", "npu_silu_backward"),
    },
    "layers.convolution": {
        "NPU": ("npu_conv2d", "npu_conv3d", "npu_conv_transpose2d", "npu_convolution", "npu_convolution_transpose")
    },
    "layers.convolution_gradients": {
        "Aten": (
            "npu_conv2d_backward", "npu_conv3d_backward", "npu_conv_transpose2d_backward",
            "npu_conv_transpose3d_backward", "npu_convolution_backward", "npu_convolution_transpose_backward",
        ),
    },
    "layers.linear": {
        "NPU": ("npu_bmmV2", "npu_linear"),
        "Aten": ("matmul_backward", "npu_linear_backward"),
    },
    "layers.loss": {"NPU": ("npu_cross_entropy_loss", "npu_softmax_cross_entropy_with_logits")},
    "layers.loss_gradients": {
        "Aten": (
            "npu_binary_cross_entropy_with_logits_backward", "npu_cross_entropy_loss_backward",
            "npu_softmax_cross_entropy_with_logits_backward",
        ),
    },
    "layers.normalization": {
        "NPU": (
            "npu_add_layer_norm", "npu_add_rms_norm", "npu_add_rms_norm_cast", "npu_add_rms_norm_v2",
            "npu_add_rms_norm_v2_functional", "npu_deep_norm", "npu_gemma_rms_norm", "npu_group_norm_silu",
            "npu_group_norm_swish", "npu_layer_norm_eval", "npu_rms_norm",
        ),
        "Aten": ("npu_rms_norm_backward",),
    },
    "layers.normalization_gradients": {
        "Aten": (
            "npu_add_layer_norm_backward", "npu_deep_norm_backward", "npu_group_norm_swish_grad",
            "npu_layernorm_grad", "npu_renorm_backward",
        ),
    },
    "layers.optimizer": {"NPU": ("npu_apply_adam", "npu_apply_adam_w")},
    "layers.rotary": {
        "NPU": ("npu_apply_rotary_pos_emb", "npu_interleave_rope", "npu_mrope", "npu_rotary_mul"),
        "Aten": ("npu_rotary_mul_backward",),
    },

    "matmul.accumulated_products": {
        "NPU": (
            "npu_add_quant_gmm", "npu_add_quant_gmm_", "npu_add_quant_matmul", "npu_add_quant_matmul_",
            "npu_grouped_matmul_add", "npu_grouped_matmul_add_",
        ),
    },
    "matmul.feed_forward": {"NPU": ("npu_ffn",)},
    "matmul.grouped_layers": {
        "NPU": (
            "npu_grouped_matmul_finalize_routing", "npu_grouped_matmul_swiglu_quant",
            "npu_grouped_matmul_swiglu_quant_v2", "npu_quant_grouped_matmul_dequant",
        ),
    },
    "matmul.grouped_matmul": {"NPU": ("npu_grouped_matmul",)},
    "matmul.permuted_matmul": {
        "NPU": (
            "npu_batch_gather_matmul", "npu_batch_gather_matmul_", "npu_fused_matmul", "npu_transpose_batchmatmul",
            "npu_transpose_quant_batchmatmul",
        ),
        "Aten": ("npu_bmm_v2_mat1_backward", "npu_bmm_v2_mat2_backward"),
    },
    "matmul.quantized_matmul": {
        "NPU": (
            "npu_quant_matmul", "npu_quant_matmul_dequant", "npu_quant_matmul_gelu", "npu_quant_matmul_reduce_sum",
            "npu_weight_quant_batchmatmul",
        ),
    },
    "matmul.vocabulary_loss": {
        "NPU": (
            "npu_fused_cross_entropy_loss_with_max_sum",
            "npu_fused_linear_cross_entropy_loss_with_max_sum_backward", "npu_fused_linear_online_max_sum",
        ),
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

    "tensors.layout": {
        "NPU": (
            "npu_broadcast", "npu_confusion_transpose", "npu_dtype_cast", "npu_dtype_cast_", "npu_format_cast",
            "npu_format_cast_", "npu_indexing", "npu_max", "npu_min", "npu_one_hot", "npu_reshape",
            "npu_sign_bits_pack", "npu_sign_bits_unpack", "npu_slice", "npu_sort_v2", "npu_transpose", "one_",
        ),
        "Aten": ("npu_confusion_transpose_backward",),
    },
    "tensors.picked_gradients": {
        "Aten": (
            "_npu_dtype_cast", "_npu_dtype_cast_backward", "_npu_format_cast", "npu_dtype_cast_backward",
            "npu_gather_backward", "npu_gather_sparse_index_backward", "npu_max_backward", "npu_min_backward",
        ),
    },
    "tensors.placement": {
        "NPU": (
            "npu_alloc_float_status", "npu_masked_fill_range", "npu_pad", "npu_scatter", "npu_scatter_list",
            "npu_scatter_list_", "npu_stride_add", "npu_stride_copy", "npu_view_copy",
        ),
        "Aten": ("_npu_index_add", "_npu_index_add_"),
    },
    "tensors.scatter": {
        "NPU": (
            "npu_gather_sparse_index", "npu_scatter_nd_update", "npu_scatter_nd_update_", "scatter_update",
            "scatter_update_",
        ),
    },
}  # fmt: skip
