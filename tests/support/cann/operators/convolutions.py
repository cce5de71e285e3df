"""Convolutions of any number of dimensions and their gradients, tap by tap."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import torch
from torch import Tensor

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


def npu_convolution(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    return _with_bias(_convolve(input, weight, _geometry(stride, padding, dilation), groups), bias, input.dtype)


def npu_conv2d(input: Tensor, weight: Tensor, *rest: object) -> Tensor:  # noqa: A002
    return npu_convolution(input, weight, *rest)  # type: ignore[arg-type]


def npu_conv3d(input: Tensor, weight: Tensor, *rest: object) -> Tensor:  # noqa: A002
    return npu_convolution(input, weight, *rest)  # type: ignore[arg-type]


def npu_convolution_transpose(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    sizes = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, output_padding, strict=True)
    large = [
        (n - 1) * each - 2 * before + apart * (taps - 1) + more + 1 for n, taps, each, before, apart, more in sizes
    ]
    out = _spread(input, weight, large, _geometry(stride, padding, dilation), groups)
    return _with_bias(out, bias, input.dtype)


def npu_conv_transpose2d(input: Tensor, weight: Tensor, *rest: object) -> Tensor:  # noqa: A002
    return npu_convolution_transpose(input, weight, *rest)  # type: ignore[arg-type]


def npu_convolution_backward(
    input: Tensor,  # noqa: A002
    grad_output: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    geometry = _geometry(stride, padding, dilation)
    of_input = _spread(grad_output, weight, input.shape[2:], geometry, groups)
    of_weight = _of_weight(grad_output, input, weight, geometry, groups)
    of_bias = grad_output.double().transpose(0, 1).flatten(1).sum(1)
    return _masked((of_input, of_weight, of_bias), output_mask, input.dtype)


def npu_conv2d_backward(input: Tensor, grad_output: Tensor, *rest: object) -> tuple[Tensor | None, ...]:  # noqa: A002
    return npu_convolution_backward(input, grad_output, *rest)  # type: ignore[arg-type]


def npu_conv3d_backward(input: Tensor, grad: Tensor, *rest: object) -> tuple[Tensor | None, ...]:  # noqa: A002
    return npu_convolution_backward(input, grad, *rest)  # type: ignore[arg-type]


def npu_convolution_transpose_backward(
    input: Tensor,  # noqa: A002
    grad: Tensor,
    weight: Tensor,
    padding: Sequence[int],
    output_padding: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    grad_input_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    geometry = _geometry(stride, padding, dilation)
    of_input = _convolve(grad, weight, geometry, groups)[_inside(input)]
    of_weight = _of_weight(input, grad, weight, geometry, groups)
    of_bias = grad.double().transpose(0, 1).flatten(1).sum(1)
    return _masked((of_input, of_weight, of_bias), grad_input_mask, input.dtype)


def _inside(image: Tensor) -> tuple[slice, ...]:
    """Leave out the places that only output padding has made room for."""
    return (slice(None), slice(None), *(slice(size) for size in image.shape[2:]))


def npu_conv_transpose2d_backward(
    input: Tensor,  # noqa: A002
    grad_output: Tensor,
    *rest: object,
) -> tuple[Tensor | None, ...]:
    return npu_convolution_transpose_backward(input, grad_output, *rest)  # type: ignore[arg-type]


def npu_conv_transpose3d_backward(
    input: Tensor,  # noqa: A002
    grad_output: Tensor,
    *rest: object,
) -> tuple[Tensor | None, ...]:
    return npu_convolution_transpose_backward(input, grad_output, *rest)  # type: ignore[arg-type]
