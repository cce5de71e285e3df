"""Parameters of quantized products, and what is quantized into a cache or for experts, word by word."""

from __future__ import annotations

import struct

import numpy as np
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema
from tests.support.cann.operators.mx_quantization import as_float32
from tests.support.cann.small_floats import dtype_of, kind_of, loaded, stored


@by_schema
def npu_trans_quant_param(args: Arguments) -> Tensor:
    count = max(args.scale.numel(), 1 if args.offset is None else args.offset.numel())
    words = []
    for place in range(count):
        (bits,) = struct.unpack("<I", struct.pack("<f", float(args.scale.flatten()[place % args.scale.numel()])))
        high = round(bits / 8192) if args.round_mode else bits // 8192
        word = high * 8192 + (1 << 46)
        if args.offset is not None:
            shift = max(-256, min(255, round(float(args.offset.flatten()[place % args.offset.numel()]))))
            word += (shift % 512) << 37
        words.append(word)
    return torch.tensor(words, dtype=torch.int64).reshape(args.scale.shape if args.scale.dim() == 2 else (count,))


@by_schema
def npu_convert_weight_to_int4pack(args: Arguments) -> Tensor:
    return stored(args.weight.double().numpy(), "int4")


@by_schema
def npu_weight_quant_preprocess(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    offset, shift = (
        args.weight.new_empty(0) if each is None else each.clone() for each in (args.weight_offset, args.bias)
    )
    return args.weight.clone(), args.weight_scale.clone(), offset, shift


@by_schema
def npu_dequant_bias(args: Arguments) -> Tensor:
    y = torch.empty(args.x.shape, dtype=torch.float32)
    for row, column in np.ndindex(*args.x.shape):
        value = int(args.x[row, column])
        value += int(args.bias[column]) if args.bias is not None and not args.bias.is_floating_point() else 0
        scaled = value * float(args.weight_scale[column])
        scaled *= 1.0 if args.activation_scale is None else float(args.activation_scale[row])
        scaled += float(args.bias[column]) if args.bias is not None and args.bias.is_floating_point() else 0.0
        y[row, column] = scaled
    return y.to(dtype_of(args.output_dtype, torch.float16))


@by_schema
def npu_quant_conv2d(args: Arguments) -> Tensor:
    kinds = ["hif8" if dtype == 290 else "e4m3" for dtype in (args.input_dtype, args.weight_dtype)]
    x, kernel = loaded(args.input, kinds[0]), loaded(args.weight, kinds[1])
    (down, right), (top, left), (below, behind) = (
        (each, each) if isinstance(each, int) else tuple(each) for each in (args.strides, args.pads, args.dilations)
    )
    x = np.pad(x, ((0, 0), (0, 0), (top, top), (left, left)), constant_values=float(args.offset_x))
    height = (x.shape[2] - below * (kernel.shape[2] - 1) - 1) // down + 1
    width = (x.shape[3] - behind * (kernel.shape[3] - 1) - 1) // right + 1
    y = np.zeros((len(x), len(kernel), height, width))
    channels, outputs = kernel.shape[1], len(kernel) // args.groups
    for channel, row, column in np.ndindex(len(kernel), height, width):
        seen = x[:, channel // outputs * channels : (channel // outputs + 1) * channels]
        window = seen[:, :, row * down :: below, column * right :: behind][:, :, : kernel.shape[2], : kernel.shape[3]]
        y[:, channel, row, column] = (window * kernel[channel]).sum((1, 2, 3))
    y = y if args.bias is None else y + args.bias.double().numpy().reshape(-1, 1, 1)
    words = [struct.pack("<I", int(word) & 0xFFFFFFFF) for word in args.scale]
    y *= np.array([struct.unpack("<f", word)[0] for word in words]).reshape(-1, 1, 1)
    return (
        stored(y, "hif8")
        if args.output_dtype == 290
        else torch.from_numpy(y).to(dtype_of(args.output_dtype, torch.float16))
    )


@by_schema
def npu_quant_scatter_(args: Arguments) -> Tensor:
    shift = 0 if args.quant_zero_points is None else as_float32(args.quant_zero_points).reshape(-1)
    numbers = stored(
        as_float32(args.updates) / as_float32(args.quant_scales).reshape(-1) + shift, kind_of(args.dst_type)
    )
    at = args.axis % args.self.dim()
    for place in np.ndindex(*args.updates.shape):
        where = list(place)
        if args.indices.dim() == 2:
            where[0] = int(args.indices[place[0], 0])
        where[at] += int(args.indices[place[0], 1] if args.indices.dim() == 2 else args.indices[place[0]])
        args.self[tuple(where)] = numbers[place]
    return args.self


@by_schema
def npu_quant_scatter(args: Arguments) -> Tensor:
    written = args.self.clone()
    npu_quant_scatter_(
        written, args.indices, args.updates, args.quant_scales, args.quant_zero_points, args.axis, args.quant_axis,
        args.reduce, args.dst_type,
    )  # fmt: skip
    return written


@by_schema
def npu_moe_init_routing_quant(args: Arguments) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows, count = as_float32(args.x), args.expert_idx.shape[1]
    copies = sorted(range(args.expert_idx.numel()), key=lambda copy: (int(args.expert_idx.flatten()[copy]), copy))
    sizes = np.bincount(args.expert_idx.flatten().numpy(), minlength=args.expert_num)
    slots = (
        args.expert_num * args.expert_capacity
        if args.drop_pad_mode
        else min(args.active_num or len(copies), len(copies))
    )
    numbers, scales = np.zeros((slots, args.x.shape[1])), np.zeros(slots, np.float32)
    went, taken = np.zeros(len(copies), np.int32), np.zeros(args.expert_num, dtype=int)
    for place, copy in enumerate(copies):
        expert = int(args.expert_idx.flatten()[copy])
        slot = expert * args.expert_capacity + taken[expert] if args.drop_pad_mode else place
        taken[expert] += 1
        is_dropped = args.drop_pad_mode and taken[expert] > args.expert_capacity
        went[copy] = -1 if is_dropped else slot
        if is_dropped or slot >= slots:
            continue
        values = rows[copy // count]
        if args.quant_mode == 0:
            numbers[slot] = values * float(args.scale) + float(args.offset)
            continue
        values = values if args.scale is None else values * as_float32(args.scale)[expert % len(args.scale)]
        scales[slot] = np.abs(values).max() / np.float32(127)
        numbers[slot] = values / scales[slot]
    shape = (args.expert_num, args.expert_capacity, -1) if args.drop_pad_mode else numbers.shape
    tokens = np.cumsum(sizes) if args.expert_tokens_num_mode == 1 else sizes
    counts = torch.from_numpy(tokens).int()
    return stored(numbers, "int8").reshape(shape), torch.from_numpy(went), counts, counts, torch.from_numpy(scales)
