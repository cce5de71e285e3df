"""Parameters of quantized products, and what is quantized into a cache or for experts, word by word."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.mx_quantization import as_float32
from tests.support.cann.small_floats import dtype_of, kind_of, loaded, stored


def npu_trans_quant_param(scale: Tensor, offset: Tensor | None = None, round_mode: int | None = 0) -> Tensor:
    count = max(scale.numel(), 1 if offset is None else offset.numel())
    words = []
    for place in range(count):
        (bits,) = struct.unpack("<I", struct.pack("<f", float(scale.flatten()[place % scale.numel()])))
        high = round(bits / 8192) if round_mode else bits // 8192
        word = high * 8192 + (1 << 46)
        if offset is not None:
            shift = max(-256, min(255, round(float(offset.flatten()[place % offset.numel()]))))
            word += (shift % 512) << 37
        words.append(word)
    return torch.tensor(words, dtype=torch.int64).reshape(scale.shape if scale.dim() == 2 else (count,))


def npu_convert_weight_to_int4pack(weight: Tensor, inner_k_tiles: int = 0) -> Tensor:
    return stored(weight.double().numpy(), "int4")


def npu_weight_quant_preprocess(
    weight: Tensor,
    weight_scale: Tensor,
    x_dtype: int,
    weight_dtype: int,
    weight_scale_dtype: int,
    weight_offset: Tensor | None = None,
    bias: Tensor | None = None,
    x_scale_dtype: int | None = None,
    k_group_size: int | None = 0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    offset, shift = (weight.new_empty(0) if each is None else each.clone() for each in (weight_offset, bias))
    return weight.clone(), weight_scale.clone(), offset, shift


def npu_dequant_bias(
    x: Tensor,
    weight_scale: Tensor,
    activation_scale: Tensor | None,
    bias: Tensor | None,
    *,
    output_dtype: Any = None,
) -> Tensor:
    y = torch.empty(x.shape, dtype=torch.float32)
    for row, column in np.ndindex(*x.shape):
        value = int(x[row, column])
        value += int(bias[column]) if bias is not None and not bias.is_floating_point() else 0
        scaled = value * float(weight_scale[column])
        scaled *= 1.0 if activation_scale is None else float(activation_scale[row])
        scaled += float(bias[column]) if bias is not None and bias.is_floating_point() else 0.0
        y[row, column] = scaled
    return y.to(dtype_of(output_dtype, torch.float16))


def npu_quant_conv2d(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    scale: Tensor,
    strides: Any = 1,
    pads: Any = 0,
    dilations: Any = 1,
    groups: int = 1,
    offset_x: int = 0,
    round_mode: str = "rint",
    output_dtype: Any = None,
    bias: Tensor | None = None,
    offset: Tensor | None = None,
    input_dtype: Any = None,
    weight_dtype: Any = None,
) -> Tensor:
    kinds = ["hif8" if dtype == 290 else "e4m3" for dtype in (input_dtype, weight_dtype)]
    x, kernel = loaded(input, kinds[0]), loaded(weight, kinds[1])
    (down, right), (top, left), (below, behind) = (
        (each, each) if isinstance(each, int) else tuple(each) for each in (strides, pads, dilations)
    )
    x = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=float(offset_x))
    height = (x.shape[2] - below * (kernel.shape[2] - 1) - 1) // down + 1
    width = (x.shape[3] - behind * (kernel.shape[3] - 1) - 1) // right + 1
    y = np.zeros((len(x), len(kernel), height, width))
    channels, outputs = kernel.shape[1], len(kernel) // groups
    for channel, row, column in np.ndindex(len(kernel), height, width):
        seen = x[:, channel // outputs * channels : (channel // outputs + 1) * channels]
        window = seen[:, :, row * down :: below, column * right :: behind][:, :, : kernel.shape[2], : kernel.shape[3]]
        y[:, channel, row, column] = (window * kernel[channel]).sum((1, 2, 3))
    y = y if bias is None else y + bias.double().numpy().reshape(-1, 1, 1)
    words = [struct.pack("<I", int(word) & 0xFFFFFFFF) for word in scale]
    y *= np.array([struct.unpack("<f", word)[0] for word in words]).reshape(-1, 1, 1)
    return stored(y, "hif8") if output_dtype == 290 else torch.from_numpy(y).to(dtype_of(output_dtype, torch.float16))


def npu_quant_scatter_(
    self: Tensor,
    indices: Tensor,
    updates: Tensor,
    quant_scales: Tensor,
    quant_zero_points: Tensor | None = None,
    axis: int = -2,
    quant_axis: int = -1,
    reduce: str = "update",
    dst_type: Any = None,
    round_mode: str | None = "rint",
) -> Tensor:
    shift = 0 if quant_zero_points is None else as_float32(quant_zero_points).reshape(-1)
    numbers = stored(as_float32(updates) / as_float32(quant_scales).reshape(-1) + shift, kind_of(dst_type))
    at = axis % self.dim()
    for place in np.ndindex(*updates.shape):
        where = list(place)
        if indices.dim() == 2:
            where[0] = int(indices[place[0], 0])
        where[at] += int(indices[place[0], 1] if indices.dim() == 2 else indices[place[0]])
        self[tuple(where)] = numbers[place]
    return self


def npu_quant_scatter(
    self: Tensor,
    indices: Tensor,
    updates: Tensor,
    quant_scales: Tensor,
    quant_zero_points: Tensor | None = None,
    axis: int = -2,
    quant_axis: int = -1,
    reduce: str = "update",
    dst_type: Any = None,
    round_mode: str | None = "rint",
) -> Tensor:
    written = self.clone()
    npu_quant_scatter_(written, indices, updates, quant_scales, quant_zero_points, axis, quant_axis, reduce, dst_type)
    return written


def npu_moe_init_routing_quant(
    x: Tensor,
    expert_idx: Tensor,
    *,
    scale: Tensor | None = None,
    offset: Tensor | None = None,
    active_num: int = 1024,
    expert_capacity: int = 0,
    expert_num: int = 256,
    drop_pad_mode: int = 0,
    expert_tokens_num_mode: int = 0,
    expert_tokens_before_capacity_flag: bool = False,
    quant_mode: int = 1,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, count = as_float32(x), expert_idx.shape[1]
    copies = sorted(range(expert_idx.numel()), key=lambda copy: (int(expert_idx.flatten()[copy]), copy))
    sizes = np.bincount(expert_idx.flatten().numpy(), minlength=expert_num)
    slots = expert_num * expert_capacity if drop_pad_mode else min(active_num or len(copies), len(copies))
    numbers, scales = np.zeros((slots, x.shape[1])), np.zeros(slots, np.float32)
    went, taken = np.zeros(len(copies), np.int32), np.zeros(expert_num, dtype=int)
    for place, copy in enumerate(copies):
        expert = int(expert_idx.flatten()[copy])
        slot = expert * expert_capacity + taken[expert] if drop_pad_mode else place
        taken[expert] += 1
        is_dropped = drop_pad_mode and taken[expert] > expert_capacity
        went[copy] = -1 if is_dropped else slot
        if is_dropped or slot >= slots:
            continue
        values = rows[copy // count]
        if quant_mode == 0:
            numbers[slot] = values * float(scale) + float(offset)
            continue
        values = values if scale is None else values * as_float32(scale)[expert % len(scale)]
        scales[slot] = np.abs(values).max() / np.float32(127)
        numbers[slot] = values / scales[slot]
    shape = (expert_num, expert_capacity, -1) if drop_pad_mode else numbers.shape
    tokens = np.cumsum(sizes) if expert_tokens_num_mode == 1 else sizes
    counts = torch.from_numpy(tokens).int()
    return stored(numbers, "int8").reshape(shape), torch.from_numpy(went), counts, counts, torch.from_numpy(scales)
