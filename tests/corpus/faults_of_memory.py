"""Defects of memory: lost, stale and flipped elements, results of the wrong type or in the wrong place."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.values.pytree import map_tensors
from tests.corpus.fault import Launch, overwrite, plain_name, variant

ELEMENTWISE = "add sub rsub mul div sqrt pow rsqrt tanh sigmoid silu sin cos relu addcmul addcdiv lerp"
PRODUCTS = "matmul linear addmm bmm"
MOVES = "embedding getitem cat where transpose unsqueeze view_as reshape flatten split pad"
OPTIMIZER = "add mul lerp addcmul addcdiv"


@variant(f"{ELEMENTWISE} {PRODUCTS} {MOVES} softmax layer_norm batch_norm conv2d max_pool2d")
def last_element_dropped(launch: Launch) -> Any:
    """The last element of each result stays zero."""

    def drop(values: torch.Tensor) -> torch.Tensor:
        values.view(-1)[-1] = 0
        return values

    return overwrite(launch.run(), lambda values: drop(values.contiguous()))


@variant(f"{PRODUCTS} softmax layer_norm {ELEMENTWISE}")
def last_column_dropped(launch: Launch) -> Any:
    """The last column of each result stays zero."""

    def drop(values: torch.Tensor) -> torch.Tensor:
        if values.dim():
            values[..., -1] = 0
        return values

    return overwrite(launch.run(), drop)


@variant("matmul linear addmm bmm")
def last_inner_index_dropped(launch: Launch) -> Any:
    """Matrix products leave out the last index of the inner dimension."""
    first = 1 if plain_name(launch.api) == "addmm" else 0
    args = list(launch.args)
    keep = torch.ones(args[first].shape[-1], dtype=args[first].dtype)
    keep[-1] = 0
    args[first] = args[first] * keep
    return launch.run(*args)


@variant(PRODUCTS)
def tile_of_zeros(launch: Launch) -> Any:
    """A tile of 8 x 8 elements is never written."""

    def drop(values: torch.Tensor) -> torch.Tensor:
        values.view(-1, *values.shape[-2:])[-1, -8:, -8:] = 0
        return values

    return overwrite(launch.run(), drop)


@variant(f"{ELEMENTWISE} {PRODUCTS} layer_norm batch_norm conv2d softmax")
def one_wrong_element(launch: Launch) -> Any:
    """One element of each result is half as large as it should be."""

    def change(values: torch.Tensor) -> torch.Tensor:
        values = values.contiguous()
        values.view(-1)[values.numel() * 2 // 3] *= 0.5
        return values

    return overwrite(launch.run(), change)


@variant(f"{ELEMENTWISE} {PRODUCTS} layer_norm conv2d {MOVES}")
def bit_flip(launch: Launch) -> Any:
    """Bit 18 of one float32 element is flipped."""

    def flip(values: torch.Tensor) -> torch.Tensor:
        values = values.contiguous()
        if values.dtype == torch.float32:
            values.view(torch.int32).view(-1)[values.numel() // 2] ^= 1 << 18
        return values

    return overwrite(launch.run(), flip)


@variant()
def stale_output(launch: Launch) -> Any:
    """Every third result is what the same buffer held before: the previous result of this shape."""
    output = launch.run()
    count = launch.memory["count"] = launch.memory.get("count", 0) + 1

    def swap(values: torch.Tensor) -> torch.Tensor:
        key = (launch.api, values.dtype, values.shape)
        former = launch.memory.get(key)
        launch.memory[key] = values
        return values if former is None or count % 3 else former

    return overwrite(output, swap)


@variant("tanh sigmoid silu relu softmax sqrt rsqrt sin cos pow")
def input_returned(launch: Launch) -> Any:
    """A function returns its input unchanged."""
    return overwrite(launch.run(), lambda values: launch.args[0].detach().to(values.dtype))


@variant(OPTIMIZER)
def in_place_result_not_written(launch: Launch) -> Any:
    """An in-place operation returns the right result and leaves the tensor as it was."""
    if not launch.in_place or not isinstance(launch.args[0], torch.Tensor):
        return launch.run()
    former = launch.args[0].detach().clone()
    result = launch.run()
    right = result.clone()
    result.data.copy_(former)
    return right


@variant(f"{PRODUCTS} {ELEMENTWISE} layer_norm softmax conv2d")
def argument_overwritten(launch: Launch) -> Any:
    """A kernel writes past its output: the first element of its first argument becomes zero."""
    output = launch.run()
    first = launch.args[0]
    if not launch.in_place and isinstance(first, torch.Tensor) and first.numel():
        first.data[(0,) * first.dim()] = 0
    return output


@variant(f"{PRODUCTS} softmax layer_norm mean conv2d")
def wider_output_dtype(launch: Launch) -> Any:
    """Results come as float64."""
    return map_tensors(torch.Tensor.double, launch.run())


@variant(f"{PRODUCTS} softmax layer_norm mean conv2d")
def narrower_output_dtype(launch: Launch) -> Any:
    """Results come as float16."""
    return map_tensors(torch.Tensor.half, launch.run())
