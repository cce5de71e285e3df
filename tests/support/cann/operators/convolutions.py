"""Convolutions of any number of dimensions and their gradients, tap by tap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.operators.by_schema import Arguments, by_schema

Place = tuple[int, ...]


def _taps(
    small: Sequence[int], large: Sequence[int], kernel: Sequence[int], stride: Place, padding: Place, dilation: Place
) -> Iterator[tuple[Place, Place, Place]]:
    """Where each place of the smaller image looks in the larger one, and through which place of the kernel."""
    for place in product(*map(range, small)):
        for tap in product(*map(range, kernel)):
            steps = zip(place, stride, tap, dilation, padding, strict=True)
            seen = tuple(at * each + along * apart - before for at, each, along, apart, before in steps)
            if all(0 <= at < size for at, size in zip(seen, large, strict=True)):
                yield place, seen, tap


def _geometry(*each: Sequence[int]) -> tuple[Place, ...]:
    return tuple(tuple(numbers) for numbers in each)


def _all(place: Place) -> tuple[slice | int, ...]:
    return (slice(None), slice(None), *place)


def _convolve(x: Tensor, weight: Tensor, geometry: tuple[Place, ...], groups: int) -> Tensor:
    """The image that places of x are seen from, in float64."""
    stride, padding, dilation = geometry
    sizes = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    small = [(size + 2 * before - apart * (taps - 1) - 1) // each + 1 for size, taps, each, before, apart in sizes]
    out = torch.zeros(x.shape[0], weight.shape[0], *small, dtype=torch.float64)
    for mine, theirs, part in _groups(weight.shape[0], x.shape[1], groups):
        for place, seen, tap in _taps(small, x.shape[2:], weight.shape[2:], *geometry):
            out[_all(place)][:, mine] += x.double()[_all(seen)][:, theirs] @ weight.double()[_all(tap)][part].T
    return out


def _groups(outputs: int, inputs: int, groups: int) -> Iterator[tuple[slice, slice, slice]]:
    for g in range(groups):
        mine = slice(g * outputs // groups, (g + 1) * outputs // groups)
        yield mine, slice(g * inputs // groups, (g + 1) * inputs // groups), mine


def _spread(y: Tensor, weight: Tensor, large: Sequence[int], geometry: tuple[Place, ...], groups: int) -> Tensor:
    """What the places of the larger image get from those that look at them, in float64."""
    inputs = weight.shape[1] * groups
    out = torch.zeros(y.shape[0], inputs, *large, dtype=torch.float64)
    for mine, theirs, part in _groups(y.shape[1], inputs, groups):
        for place, seen, tap in _taps(y.shape[2:], large, weight.shape[2:], *geometry):
            out[_all(seen)][:, theirs] += y.double()[_all(place)][:, mine] @ weight.double()[_all(tap)][part]
    return out


def _of_weight(y: Tensor, x: Tensor, weight: Tensor, geometry: tuple[Place, ...], groups: int) -> Tensor:
    """The sum over places of y times what they see in x, in float64."""
    out = torch.zeros_like(weight, dtype=torch.float64)
    for mine, theirs, part in _groups(y.shape[1], x.shape[1], groups):
        for place, seen, tap in _taps(y.shape[2:], x.shape[2:], weight.shape[2:], *geometry):
            out[_all(tap)][part] += y.double()[_all(place)][:, mine].T @ x.double()[_all(seen)][:, theirs]
    return out


def _with_bias(out: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    if bias is not None:
        out += bias.double().reshape(1, -1, *[1] * (out.dim() - 2))
    return out.to(dtype)


def _masked(found: Sequence[Tensor], mask: Sequence[bool], dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    return tuple(each.to(dtype) if wanted else None for each, wanted in zip(found, mask, strict=True))


@by_schema
def npu_convolution(args: Arguments) -> Tensor:
    return _with_bias(
        _convolve(args.input, args.weight, _geometry(args.stride, args.padding, args.dilation), args.groups),
        args.bias,
        args.input.dtype,
    )


@by_schema
def npu_conv2d(args: Arguments) -> Tensor:
    return npu_convolution(args.input, args.weight, args.bias, args.stride, args.padding, args.dilation, args.groups)


@by_schema
def npu_conv3d(args: Arguments) -> Tensor:
    return npu_convolution(args.input, args.weight, args.bias, args.stride, args.padding, args.dilation, args.groups)


@by_schema
def npu_convolution_transpose(args: Arguments) -> Tensor:
    sizes = zip(
        args.input.shape[2:],
        args.weight.shape[2:],
        args.stride,
        args.padding,
        args.dilation,
        args.output_padding,
        strict=True,
    )
    large = [
        (n - 1) * each - 2 * before + apart * (taps - 1) + more + 1 for n, taps, each, before, apart, more in sizes
    ]
    out = _spread(args.input, args.weight, large, _geometry(args.stride, args.padding, args.dilation), args.groups)
    return _with_bias(out, args.bias, args.input.dtype)


def npu_conv_transpose2d(*args: Any) -> Tensor:
    return npu_convolution_transpose(*args)


@by_schema
def npu_convolution_backward(args: Arguments) -> tuple[Tensor | None, ...]:
    geometry = _geometry(args.stride, args.padding, args.dilation)
    of_input = _spread(args.grad_output, args.weight, args.input.shape[2:], geometry, args.groups)
    of_weight = _of_weight(args.grad_output, args.input, args.weight, geometry, args.groups)
    of_bias = args.grad_output.double().transpose(0, 1).flatten(1).sum(1)
    return _masked((of_input, of_weight, of_bias), args.output_mask, args.input.dtype)


def npu_conv2d_backward(*args: Any) -> tuple[Tensor | None, ...]:
    return npu_convolution_backward(*args)


def npu_conv3d_backward(*args: Any) -> tuple[Tensor | None, ...]:
    return npu_convolution_backward(*args)


@by_schema
def npu_convolution_transpose_backward(args: Arguments) -> tuple[Tensor | None, ...]:
    geometry = _geometry(args.stride, args.padding, args.dilation)
    of_input = _convolve(args.grad, args.weight, geometry, args.groups)[_inside(args.input)]
    of_weight = _of_weight(args.input, args.grad, args.weight, geometry, args.groups)
    of_bias = args.grad.double().transpose(0, 1).flatten(1).sum(1)
    return _masked((of_input, of_weight, of_bias), args.grad_input_mask, args.input.dtype)


def _inside(image: Tensor) -> tuple[slice, ...]:
    """Leave out the places that only output padding has made room for."""
    return (slice(None), slice(None), *(slice(size) for size in image.shape[2:]))


def npu_conv_transpose2d_backward(*args: Any) -> tuple[Tensor | None, ...]:
    return npu_convolution_transpose_backward(*args)


def npu_conv_transpose3d_backward(*args: Any) -> tuple[Tensor | None, ...]:
    return npu_convolution_transpose_backward(*args)
