"""Operators of torch_npu: results that are quantized."""

from __future__ import annotations

import torch

from pytest_msprobe.engine.replay.ops.quantized_results import QuantizedResults, SharedExponents
from pytest_msprobe.engine.replay.ops.traits import OpInfo, Rows
from pytest_msprobe.engine.values import number_formats as formats
from pytest_msprobe.extensions.npu_operators.inputs import matmul_operands
from pytest_msprobe.extensions.npu_operators.inputs import moe_routing as routing

_EIGHT_BITS = frozenset({torch.int8, torch.uint8})

QUANTIZED_ROWS: Rows = (
    # results that are quantized.
    (
        "npu_quant_matmul npu_weight_quant_batchmatmul npu_transpose_batchmatmul",
        OpInfo(constraint=matmul_operands.packed_scales, quantizes=_EIGHT_BITS),
    ),
    ("npu_ffn npu_quant_matmul_dequant", OpInfo(constraint=matmul_operands.packed_scales)),
    ("npu_quantize", OpInfo(quantized=QuantizedResults(dtype="dtype", at=3, of_int32=True))),
    (
        "npu_dynamic_quant npu_dynamic_quant_asymmetric",
        OpInfo(quantized=QuantizedResults(), constraint=routing.groups_of_rows("group_index")),
    ),
    (
        "npu_group_quant",
        OpInfo(quantized=QuantizedResults(dtype="dst_dtype"), constraint=routing.groups_of_rows("group_index")),
    ),
    (
        "npu_swiglu_quant",
        OpInfo(
            quantized=QuantizedResults(),
            constraint=routing.groups_of_rows("group_index", "group_list_type"),
        ),
    ),
    (
        "npu_dequant_swiglu_quant",
        OpInfo(
            quantized=QuantizedResults(),
            constraint=routing.groups_of_rows("group_index", are_sizes=True),
        ),
    ),
    (
        "npu_swiglu_group_quant",
        OpInfo(
            quantized=QuantizedResults(
                default=formats.E5M2, also=(formats.HIFLOAT8,), exponents=(SharedExponents(at=1),), algorithm=1
            ),
            constraint=routing.groups_of_rows("group_index", are_sizes=True),
        ),
    ),
    (
        "npu_swiglu_group_quant_backward",
        OpInfo(constraint=routing.groups_of_rows("group_index", are_sizes=True)),
    ),
    ("npu_gelu_quant npu_add_rms_norm_quant", OpInfo(quantized=QuantizedResults())),
    ("npu_add_rms_norm_dynamic_quant", OpInfo(quantized=QuantizedResults(dtype="y_dtype"))),
    (
        "npu_rms_norm_quant npu_rms_norm_quant_v2",
        OpInfo(quantized=QuantizedResults(dtype="dst_dtype")),
    ),
    ("_npu_rms_norm_backward_quant npu_dynamic_block_quant", OpInfo(quantized=QuantizedResults())),
    (
        "npu_grouped_dynamic_block_quant",
        OpInfo(quantized=QuantizedResults(default=formats.E5M2), constraint=routing.groups_of_rows("group_list", at=1)),
    ),
    (
        "npu_quant_max",
        OpInfo(
            quantized=QuantizedResults(dtype="dst_dtype", default=formats.E5M2),
            constraint=routing.groups_of_rows("group_list"),
        ),
    ),
    (
        "npu_kronecker_quant",
        OpInfo(
            quantized=QuantizedResults(
                dtype="dst_dtype", at=4, default=formats.INT4, exponents=(SharedExponents(at=1),)
            )
        ),
    ),
    ("npu_rotate_quant", OpInfo(quantized=QuantizedResults(dtype="dst_dtype", exponents=(SharedExponents(at=1),)))),
    ("npu_quant_conv2d", OpInfo(quantized=QuantizedResults(dtype="output_dtype", at=9))),
    ("npu_quant_scatter npu_quant_scatter_", OpInfo(quantized=QuantizedResults(), constraint=routing.quant_scatter)),
    ("npu_moe_init_routing_quant", OpInfo(quantized=QuantizedResults(dtype=""))),
    # in blocks that share an exponent.
    (
        "npu_dynamic_mx_quant",
        OpInfo(
            quantized=QuantizedResults(
                default=formats.E2M1, exact=True, exponents=(SharedExponents(at=1, axis="axis", block="block_size"),)
            )
        ),
    ),
    (
        "npu_dynamic_mx_quant_with_dual_axis",
        OpInfo(
            quantized=QuantizedResults(
                default=formats.E2M1,
                exact=True,
                exponents=(SharedExponents(at=1), SharedExponents(at=3, of=2, axis=-2)),
            )
        ),
    ),
    (
        "npu_grouped_dynamic_mx_quant",
        OpInfo(
            quantized=QuantizedResults(
                default=formats.E5M2,
                exact=True,
                exponents=(SharedExponents(at=1, axis=-2, groups="group_index", groups_at=1),),
            ),
            constraint=routing.groups_of_rows("group_index", at=1),
        ),
    ),
    (
        "npu_dynamic_block_mx_quant",
        OpInfo(
            quantized=QuantizedResults(
                default=formats.E2M1, exact=True, exponents=(SharedExponents(at=2, axis=-2), SharedExponents(at=1))
            )
        ),
    ),
    (
        "npu_dynamic_dual_level_mx_quant",
        OpInfo(quantized=QuantizedResults(dtype="", default=formats.E2M1, exponents=(SharedExponents(at=2),))),
    ),
    (
        "npu_rms_norm_dynamic_mx_quant",
        OpInfo(quantized=QuantizedResults(default=formats.E2M1, exponents=(SharedExponents(at=1),))),
    ),
    (
        "npu_add_rms_norm_dynamic_mx_quant",
        OpInfo(quantized=QuantizedResults(default=formats.E2M1, exponents=(SharedExponents(at=2),))),
    ),
    (
        "npu_swiglu_mx_quant",
        OpInfo(
            quantized=QuantizedResults(
                default=formats.E2M1,
                exponents=(SharedExponents(at=1, axis="axis", groups="group_index", are_sizes=True),),
            ),
            constraint=routing.groups_of_rows("group_index", are_sizes=True),
        ),
    ),
    (
        "npu_swiglu_mx_quant_with_dual_axis _npu_swiglu_backward_mx_quant_with_dual_axis",
        OpInfo(
            quantized=QuantizedResults(
                default=formats.E4M3,
                algorithm=1,
                exponents=(SharedExponents(at=1), SharedExponents(at=3, of=2, axis=-2, groups="group_index")),
            ),
            constraint=routing.groups_of_rows("group_index"),
        ),
    ),
)
