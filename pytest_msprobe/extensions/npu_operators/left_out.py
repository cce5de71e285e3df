"""Operators of torch_npu that have no golden definition, by the reason; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Iterator

from msprobe_hooks.dump.communication.collectives import FUSED

#: Reason -> the operators that are skipped for it.
LEFT_OUT: dict[str, tuple[str, ...]] = {
    "how the weight is compressed is not documented": (
        "npu_matmul_compress_dequant",
    ),
    "it communicates: the other ranks' tensors are not in the record": (
        "npu_attention_to_ffn", "npu_ffn_to_attention", "npu_moe_distribute_combine_setup",
        "npu_moe_distribute_combine_teardown", "npu_moe_distribute_dispatch_setup",
        "npu_moe_distribute_dispatch_teardown", "npu_quant_all_reduce", "npu_quant_reduce_scatter",
    ),
    "it does not compute on the values of tensors": (
        "copy_memory_", "empty_with_swapped_memory", "erase_stream", "get_device_limit", "get_stream_limit",
        "matmul_checksum", "npu_change_data_ptr", "npu_clear_float_status", "npu_get_float_status", "npu_prefetch",
        "reset_stream_limit", "save_npugraph_tensor", "set_device_limit", "set_stream_limit",
    ),
    "it judges the steps of a training by their history, and by rules that are documented in part": (
        "_npu_silent_check", "_npu_silent_check_v2", "_npu_silent_check_v3",
    ),
    "it reads tokens at addresses of the device that another tensor holds": (
        "npu_attention_worker_combine", "npu_ffn_worker_batching",
    ),
    "it returns memory of the results' form, whose contents are not computed": (
        "_npu_fused_infer_attention_score_infer_output", "_npu_fused_infer_attention_score_v2_infer_output",
        "_npu_fusion_attention_grad_v3_infer_output", "_npu_fusion_attention_v3_infer_output",
    ),
    "it returns memory to work in, whose contents are not computed": (
        "_npu_fused_infer_attention_score_get_max_workspace", "_npu_fused_infer_attention_score_v2_get_max_workspace",
        "_npu_fusion_attention_grad_v3_get_max_workspace", "_npu_fusion_attention_v3_get_max_workspace",
        "atb._npu_multi_head_latent_attention_get_workspace", "atb._npu_paged_attention_v2_get_workspace",
    ),
    "it waits for the other ranks, and computes nothing": (
        "_npu_distribute_barrier",
    ),
    "its documentation does not establish what it computes": (
        "gather_pa_kv_cache", "npu_flash_attention", "npu_grouped_matmu", "npu_moe_finalize_routing_v2",
        "npu_rms_norm_dynamic_quant",
    ),
    "its result is the device's own verdict on a product, by thresholds that its documentation does not fix": (
        "_npu_matmul_abft_verify",
    ),
    "not defined yet: a coding without loss, whose bytes are the implementation's own": (
        "npu_hans_decode", "npu_hans_encode",
    ),
    "not defined yet: attention and top-k of the library ATB": (
        "atb.npu_fused_add_topk_div", "atb.npu_mla_preprocess", "atb.npu_multi_head_latent_attention",
        "atb.npu_ring_mla", "atb.npu_self_attention_prefix_encoder",
    ),
    "weights are rounded to 8 bits inside, by scales and blocks that no documentation names": (
        "npu_quant_fusion_attention", "npu_quant_fusion_attention_backward",
    ),
    "what a mask's numbers mean differs by dtype and kind of mask, and is not documented": (
        "_npu_flash_attention", "atb._npu_flash_attention_prefix_v2", "atb._npu_flash_attention_v2",
    ),
    "what it saved is laid out by the number of cores: its gradient is judged with the call, at level L1 or mix": (
        "npu_mhc_sinkhorn_backward",
    ),
}  # fmt: skip

_CHECKED_BETWEEN_RANKS = "it communicates: check its ranks with --msprobe-communication"

#: Those of them that recordings do not list, since no library has them as an API.
NOT_RECORDED = frozenset(
    """_npu_distribute_barrier _npu_fused_infer_attention_score_get_max_workspace
    _npu_fused_infer_attention_score_infer_output _npu_fused_infer_attention_score_v2_get_max_workspace
    _npu_fused_infer_attention_score_v2_infer_output _npu_fusion_attention_grad_v3_get_max_workspace
    _npu_fusion_attention_grad_v3_infer_output _npu_fusion_attention_v3_get_max_workspace
    _npu_fusion_attention_v3_infer_output _npu_matmul_abft_verify _npu_silent_check _npu_silent_check_v2
    _npu_silent_check_v3 npu_change_data_ptr npu_mhc_sinkhorn_backward npu_quant_fusion_attention_backward""".split()
)


def left_out() -> Iterator[tuple[str, str]]:
    """Yield each operator without a golden definition, and why it has none."""
    yield from ((name, reason) for reason, names in LEFT_OUT.items() for name in names)
    listed = {name for names in LEFT_OUT.values() for name in names}
    yield from ((name, _CHECKED_BETWEEN_RANKS) for name in FUSED if name not in listed)
