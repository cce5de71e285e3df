"""Operators of NPUs that compute and communicate in one call: their positional arguments, and which names the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msprobe_hooks.dump.names import is_forward
from msprobe_hooks.dump.schema import Element, ForwardRecord, ValueElement

_PRODUCT = ("x1", "x2", "hcom", "world_size")
_GATHERED = ("self", "x2", "hcom", "world_size")
_EXCHANGED = ("gmm_x", "gmm_weight", "hcom", "ep_world_size", "send_counts", "recv_counts")
_QUANTIZED = (
    "gmm_x", "gmm_weight", "gmm_x_scale", "gmm_weight_scale", "hcom", "ep_world_size", "send_counts", "recv_counts",
    "gmm_y_dtype",
)  # fmt: skip
_EXPERTS = ("group_ep", "ep_world_size", "ep_rank_id", "moe_expert_num")

#: By operator, the names of its positional arguments.
FUSED: Mapping[str, tuple[str, ...]] = {
    "npu_mm_all_reduce_base": ("x1", "x2", "hcom"),
    "npu_all_gather_base_mm": _GATHERED,
    "npu_all_gather_quant_mm": _GATHERED,
    "npu_mm_reduce_scatter_base": _GATHERED,
    "npu_quant_mm_reduce_scatter": _GATHERED,
    "npu_all_to_all_matmul": (*_PRODUCT, "bias", "all2all_axes", "all2all_out_flag", "comm_mode"),
    "npu_matmul_all_to_all": (*_PRODUCT, "bias", "all2all_axes", "comm_mode"),
    "npu_all_to_all_quant_matmul": _PRODUCT,
    "npu_quant_matmul_all_to_all": (
        *_PRODUCT, "bias", "x1_scale", "x2_scale", "common_scale", "x1_offset", "x2_offset", "x1_quant_mode",
        "x2_quant_mode", "common_quant_mode", "group_sizes", "all2all_axes", "comm_quant_dtype", "x1_dtype",
        "x2_dtype", "x1_scale_dtype", "x2_scale_dtype", "output_scale_dtype", "comm_scale_dtype", "y_dtype",
        "comm_mode",
    ),
    "npu_alltoallv_gmm": _EXCHANGED,
    "npu_gmm_alltoallv": _EXCHANGED,
    "npu_alltoallv_quant_gmm": _QUANTIZED,
    "npu_quant_gmm_alltoallv": _QUANTIZED,
    "npu_moe_distribute_dispatch": ("x", "expert_ids", *_EXPERTS),
    "npu_moe_distribute_dispatch_v2": ("x", "expert_ids", *_EXPERTS),
    "npu_moe_distribute_combine": (
        "expand_x", "expert_ids", "expand_idx", "ep_send_counts", "expert_scales", *_EXPERTS,
    ),
    "npu_moe_distribute_combine_v2": (
        "expand_x", "expert_ids", "assist_info_for_combine", "ep_send_counts", "expert_scales", *_EXPERTS,
    ),
    "npu_moe_distribute_combine_add_rms_norm": (
        "expand_x", "expert_ids", "expand_idx", "ep_send_counts", "expert_scales", "residual_x", "gamma", *_EXPERTS,
    ),
    "_npu_distribute_barrier": ("x_ref", "group", "world_size"),
}  # fmt: skip

#: The one that only waits.
BARRIER: Final = "_npu_distribute_barrier"

_PREFIX = "NPU."
_GROUPS = ("hcom", "group_ep", "group")
_SIZES = ("world_size", "ep_world_size")


def is_fused(name: str) -> bool:
    """Return whether a record is the forward direction of an operator that also communicates."""
    return name.startswith(_PREFIX) and name.split(".", 2)[1] in FUSED and is_forward(name)


def named_arguments(api: str, record: ForwardRecord) -> dict[str, Element]:
    """Return the arguments of a fused call by name."""
    return dict(zip(FUSED[api], record.args, strict=False)) | record.kwargs


def group_of(arguments: Mapping[str, Element]) -> str:
    """Return the name of the group in which a fused call communicates, empty where it is not recorded."""
    found = (arguments.get(name) for name in _GROUPS)
    return next((text for each in found if isinstance(text := _plain(each), str)), "")


def size_of(arguments: Mapping[str, Element]) -> int:
    """Return how many ranks a fused call says that its group has, 0 where it does not say."""
    found = (arguments.get(name) for name in _SIZES)
    return next((size for each in found if type(size := _plain(each)) is int), 0)


def _plain(element: Element) -> object:
    return element.value if isinstance(element, ValueElement) else None
