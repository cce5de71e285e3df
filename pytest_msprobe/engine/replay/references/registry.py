"""The golden definition of each API; nothing here imports torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_PACKAGE = __name__.rpartition(".")[0]

# module -> the functions it defines, by the API type under which a dump records them
_BUILT_IN: dict[str, dict[str, tuple[str, ...]]] = {
    "activation": {
        "NPU": (
            "fast_gelu", "npu_clipped_swiglu", "npu_fast_gelu", "npu_geglu", "npu_gelu", "npu_gelu_mul", "npu_mish",
            "npu_scaled_masked_softmax", "npu_silu", "npu_silu_", "npu_swiglu",
        ),
        "Aten": ("npu_fast_gelu_backward", "npu_scaled_masked_softmax_backward", "npu_swiglu_backward"),
    },
    "attention": {"NPU": ("npu_fusion_attention",), "Aten": ("npu_fusion_attention_grad",)},
    "attention_v2_v3": {"NPU": ("npu_attention_update", "npu_fusion_attention_v2", "npu_fusion_attention_v3")},
    "convolution": {
        "NPU": ("npu_conv2d", "npu_conv3d", "npu_conv_transpose2d", "npu_convolution", "npu_convolution_transpose")
    },
    "grouped_matmul": {"NPU": ("npu_ffn", "npu_grouped_matmul")},
    "inference_attention": {
        "NPU": ("npu_fused_infer_attention_score", "npu_incre_flash_attention", "npu_prompt_flash_attention")
    },
    "layout": {
        "NPU": (
            "npu_broadcast", "npu_confusion_transpose", "npu_dtype_cast", "npu_dtype_cast_", "npu_format_cast",
            "npu_format_cast_", "npu_indexing", "npu_max", "npu_min", "npu_one_hot", "npu_reshape",
            "npu_sign_bits_pack", "npu_sign_bits_unpack", "npu_slice", "npu_sort_v2", "npu_transpose", "one_",
        ),
        "Aten": ("npu_confusion_transpose_backward",),
    },
    "linear": {
        "NPU": ("npu_bmmV2", "npu_linear", "npu_transpose_batchmatmul"),
        "Aten": ("matmul_backward", "npu_linear_backward"),
    },
    "loss": {"NPU": ("npu_cross_entropy_loss", "npu_softmax_cross_entropy_with_logits")},
    "moe": {"NPU": ("npu_moe_gating_top_k", "npu_moe_gating_top_k_softmax")},
    "moe_routing": {
        "NPU": (
            "npu_moe_compute_expert_tokens", "npu_moe_finalize_routing", "npu_moe_init_routing",
            "npu_moe_init_routing_v2", "npu_moe_re_routing", "npu_moe_token_permute",
            "npu_moe_token_permute_with_routing_map", "npu_moe_token_unpermute",
            "npu_moe_token_unpermute_with_routing_map",
        ),
    },
    "normalization": {
        "NPU": (
            "npu_add_rms_norm", "npu_deep_norm", "npu_group_norm_silu", "npu_group_norm_swish", "npu_layer_norm_eval",
            "npu_rms_norm",
        ),
        "Aten": ("npu_rms_norm_backward",),
    },
    "optimizer": {"NPU": ("npu_apply_adam", "npu_apply_adam_w")},
    "quantization": {
        "NPU": (
            "npu_anti_quant", "npu_dynamic_quant", "npu_dynamic_quant_asymmetric", "npu_group_quant", "npu_quantize",
        ),
    },
    "quantized_layers": {
        "NPU": (
            "npu_add_rms_norm_dynamic_quant", "npu_add_rms_norm_quant", "npu_rms_norm_quant", "npu_swiglu_quant",
        ),
    },
    "quantized_matmul": {"NPU": ("npu_quant_matmul", "npu_weight_quant_batchmatmul")},
    "rotary": {
        "NPU": ("npu_apply_rotary_pos_emb", "npu_interleave_rope", "npu_mrope", "npu_rotary_mul"),
        "Aten": ("npu_rotary_mul_backward",),
    },
    "scatter": {
        "NPU": (
            "npu_gather_sparse_index", "npu_scatter_nd_update", "npu_scatter_nd_update_", "scatter_update",
            "scatter_update_",
        ),
    },
}  # fmt: skip


class ReferenceRegistry:
    """Golden definitions by API name, ``{Type}.{api}`` such as ``NPU.npu_rms_norm``.

    A new registry holds the built-in definitions; each is imported, and torch with it, when first asked for.
    """

    def __init__(self) -> None:
        self._functions: dict[str, Callable[..., Any]] = {}
        self._built_in = {
            f"{type_}.{api}": module
            for module, types in _BUILT_IN.items()
            for type_, apis in types.items()
            for api in apis
        }

    def add(self, name: str, function: Callable[..., Any]) -> None:
        """Register ``function`` as the golden definition of the API ``name``.

        ``function`` takes the API's own arguments, its tensors on the CPU and in raised precision, and returns
        what the API returns. Differentiable torch code also serves the backward call.

        Raises ValueError when ``name`` is not of the form ``{Type}.{api}`` or already has a definition, and
        TypeError when ``function`` cannot be called.
        """
        type_, dot, api = name.partition(".")
        if not (type_ and dot and api):
            raise ValueError(f"{name!r} is not an API name; write {{Type}}.{{api}}, as in NPU.npu_rms_norm")
        if not callable(function):
            raise TypeError(f"the golden definition of {name} must be callable, not {type(function).__name__}")
        if name in self._built_in or name in self._functions:
            raise ValueError(
                f"{name} has two golden definitions: {self._place_of(name)} and {_full_name(function)}; "
                "register one of them only"
            )
        self._functions[name] = function

    def get(self, name: str) -> Callable[..., Any] | None:
        """Return the golden definition of the API ``name``, or None where there is none."""
        if name in self._built_in and name not in self._functions:
            module = import_module(f"{_PACKAGE}.{self._built_in[name]}")
            self._functions[name] = getattr(module, name.partition(".")[2])
        return self._functions.get(name)

    def names(self) -> tuple[str, ...]:
        """Return the names of all APIs that have a golden definition, sorted."""
        return tuple(sorted(self._built_in.keys() | self._functions.keys()))

    def _place_of(self, name: str) -> str:
        if name in self._built_in:
            return f"{_PACKAGE}.{self._built_in[name]}.{name.partition('.')[2]}"
        return _full_name(self._functions[name])


def _full_name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", repr(function))
    return f"{getattr(function, '__module__', '?')}.{name}"
