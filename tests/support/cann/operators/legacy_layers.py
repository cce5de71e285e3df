"""The NPU's older single layers: dropout by bits, BERT's Adam, calibration, normalization, deformable convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

Array = npt.NDArray[np.float64]


@by_schema
def npu_dropout_backward(args: Arguments) -> Tensor:
    bits = np.unpackbits(args.mask.numpy(), bitorder="little")[: args.grad_output.numel()].astype(bool)
    kept = np.where(bits, _array(args.grad_output).ravel() * (0 if args.p == 1 else 1 / (1 - args.p)), 0)
    return torch.from_numpy(kept).view(args.grad_output.shape).to(args.grad_output.dtype)


@by_schema
def npu_dropout_do_mask(args: Arguments) -> tuple[Tensor, Tensor]:
    return npu_dropout_backward(args.self, args.mask, args.p), args.mask.clone()


@by_schema
def npu_bert_apply_adam(args: Arguments) -> tuple[Tensor, Tensor, Tensor]:
    weights, first, second = args.var, args.m, args.v
    clipped = args.adam_mode == 0 and args.max_grad_norm > 0 and args.global_grad_norm > 1
    g = _array(args.grad) / (args.global_grad_norm if clipped else 1)
    new_first = _array(first) + (1 - args.beta1) * (g - _array(first))
    new_second = _array(second) + (1 - args.beta2) * (g * g - _array(second))
    rate = args.lr if args.adam_mode == 0 or args.step_size is None else args.step_size
    moved = _array(weights) * (1 - args.lr * args.weight_decay) - rate * new_first / (
        np.sqrt(new_second) + args.epsilon
    )
    for target, values in ((weights, moved), (first, new_first), (second, new_second)):
        target.copy_(torch.from_numpy(values))
    return weights, first, second


@by_schema
def npu_ifmr(args: Arguments) -> tuple[Tensor, Tensor]:
    numbers, low, high = _array(args.data).ravel(), float(args.data_min), float(args.data_max)
    counts = args.cumsum.tolist()
    at_end = next(
        (bin_ for bin_, count in enumerate(counts) if count >= args.max_percentile * len(numbers)), len(counts)
    )
    at_start = next(
        (bin_ for bin_, count in enumerate(counts) if count >= (1 - args.min_percentile) * len(numbers)), len(counts)
    )
    width = (high - low) / len(counts)
    end, start = low + at_end * width, low + at_start * width
    best = (math.inf, 1.0, 0.0)
    for step in range(math.ceil(round((args.search_end - args.search_start) / args.search_step, 6))):
        factor = args.search_start + step * args.search_step
        if args.with_offset:
            scale = (max(end, 0) * factor - min(start, 0)) / 255
            scale = 1.0 if scale < 2**-23 else scale
            offset = -float(np.round(min(start, 0) / scale)) - 128
        else:
            scale, offset = max(abs(end), abs(start)) * factor / 127, 0.0
        restored = (np.clip(np.round(numbers / scale) + offset, -128, 127) - offset) * scale
        best = min(best, (float(((restored - numbers) ** 2).sum()), scale, offset), key=lambda found: found[0])
    return torch.full_like(args.data_min, best[1]), torch.full_like(args.data_min, best[2])


@by_schema
def npu_normalize_batch(args: Arguments) -> Tensor:
    results = np.empty(args.self.shape)
    for number, length in enumerate(args.seq_len.tolist()):
        x = _array(args.self[number])
        parts = [x[feature : feature + 1] for feature in range(len(x))] if args.normalize_type == 0 else [x]
        normed = [(part - part[:, :length].mean()) / (part[:, :length].std(ddof=1) + 1e-5) for part in parts]
        results[number] = np.concatenate(normed)
    return torch.from_numpy(results).to(args.self.dtype)


@by_schema
def npu_deformable_conv2d(args: Arguments) -> tuple[Tensor, Tensor]:
    samples = _samples(
        _array(args.input),
        _array(args.offset),
        args.kernel_size,
        args.stride,
        args.padding,
        args.dilation,
        args.deformable_groups,
    )
    y = _convolved(samples, _array(args.weight), args.kernel_size, args.groups)
    if args.bias is not None:
        y += _array(args.bias)[:, None, None]
    return torch.from_numpy(y).to(torch.float32), torch.from_numpy(samples).to(torch.float32)


@by_schema
def npu_deformable_conv2dbk(args: Arguments) -> tuple[Tensor, ...]:
    x, moved, grad = _array(args.input), _array(args.offset), _array(args.grad_output)
    high, wide = args.kernel_size
    samples = _array(args.offset_out)
    taps = _array(args.weight)
    of_samples, of_weight = np.zeros(samples.shape), np.zeros(taps.shape)
    for window in np.ndindex(high, wide):
        part = (slice(None), slice(None), slice(window[0], None, high), slice(window[1], None, wide))
        for group in range(args.groups):
            ins = slice(group * taps.shape[1], (group + 1) * taps.shape[1])
            outs = slice(group * len(taps) // args.groups, (group + 1) * len(taps) // args.groups)
            here = (part[0], ins, *part[2:])
            of_samples[here] += np.einsum("oi,nohw->nihw", taps[(outs, slice(None), *window)], grad[:, outs])
            of_weight[(outs, slice(None), *window)] += np.einsum("nohw,nihw->oi", grad[:, outs], samples[here])
    of_x, of_offset = np.zeros(x.shape), np.zeros(moved.shape)
    geometry = (args.kernel_size, args.stride, args.padding, args.dilation, args.deformable_groups)
    for n, channels, at, place, scale in _places(x, moved, *geometry):
        arriving = of_samples[(n, channels, *at)]
        y_at, x_at = place
        top, left = math.floor(y_at), math.floor(x_at)
        found, down, right = np.zeros(len(arriving)), np.zeros(len(arriving)), np.zeros(len(arriving))
        for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                pixel = x[n, channels, row, column]
                of_row, of_column = 1 - abs(y_at - row), 1 - abs(x_at - column)
                of_x[n, channels, row, column] += arriving * scale * of_row * of_column
                found += pixel * of_row * of_column
                down += pixel * (1 if row > top else -1) * of_column
                right += pixel * of_row * (1 if column > left else -1)
        planes = of_offset[n].reshape(3, -1, *moved.shape[2:])
        index = (
            _tap(channels, x.shape[1] // args.deformable_groups, at, args.kernel_size),
            at[0] // high,
            at[1] // wide,
        )
        for plane, value in enumerate((right * scale, down * scale, found)):
            planes[(plane, *index)] += float(arriving @ value)
    grads = (of_x, of_weight, of_offset, grad.sum((0, 2, 3)))
    return tuple(torch.from_numpy(each).to(torch.float32) for each in grads)


def _places(x: Array, offset: Array, kernel_size: Sequence[int], *geometry: Any) -> Any:
    """Yield for each sample its image, channels, place among the samples, place in the image, and mask."""
    stride, padding, dilation, groups = geometry
    high, wide = kernel_size
    size = x.shape[1] // groups
    planes = offset.reshape(len(x), 3, groups, high, wide, *offset.shape[2:])
    for n, group, i, j, row, column in np.ndindex(len(x), groups, high, wide, *offset.shape[2:]):
        right, down, scale = planes[n, :, group, i, j, row, column]
        y_at = row * stride[2] - padding[0] + i * dilation[2] + down
        x_at = column * stride[3] - padding[2] + j * dilation[3] + right
        yield n, slice(group * size, (group + 1) * size), (row * high + i, column * wide + j), (y_at, x_at), scale


def _tap(channels: slice, size: int, at: tuple[int, int], kernel_size: Sequence[int]) -> int:
    high, wide = kernel_size
    return (channels.start // size * high + at[0] % high) * wide + at[1] % wide


def _samples(x: Array, offset: Array, kernel_size: Sequence[int], *geometry: Any) -> Array:
    rows, columns = offset.shape[2] * kernel_size[0], offset.shape[3] * kernel_size[1]
    samples = np.zeros((len(x), x.shape[1], rows, columns))
    for n, channels, at, (y_at, x_at), scale in _places(x, offset, kernel_size, *geometry):
        top, left = math.floor(y_at), math.floor(x_at)
        for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
            if 0 <= row < x.shape[2] and 0 <= column < x.shape[3]:
                share = (1 - abs(y_at - row)) * (1 - abs(x_at - column)) * scale
                samples[(n, channels, *at)] += x[n, channels, row, column] * share
    return samples


def _convolved(samples: Array, weight: Array, kernel_size: Sequence[int], groups: int) -> Array:
    high, wide = kernel_size
    parts = []
    for filters, inputs in zip(np.split(weight, groups), np.split(samples, groups, 1), strict=True):
        windows = inputs.reshape(*inputs.shape[:2], -1, high, inputs.shape[3] // wide, wide)
        parts.append(np.einsum("oiab,nihawb->nohw", filters, windows))
    return np.concatenate(parts, 1)


def _array(x: Tensor) -> Array:
    return cast(Array, x.detach().double().numpy())
