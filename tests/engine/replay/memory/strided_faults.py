"""Devices that misread memory which is not contiguous, as kernels of real cards did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from msprobe_hooks.dump.memory_layouts import span
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.values.pytree import map_tensors
from pytest_msprobe.engine.values.strides import whole_memory

Misread = Callable[[torch.Tensor], torch.Tensor]


def linearly(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is read from its first element on as if it were contiguous."""
    memory = whole_memory(tensor)[tensor.storage_offset() :]
    if tensor.is_contiguous() or not memory.numel():
        return tensor
    return memory[torch.arange(tensor.numel()) % memory.numel()].view(tensor.shape)


def without_offset(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it is read from the beginning of its storage."""
    return whole_memory(tensor).as_strided(tensor.shape, tensor.stride(), 0) if tensor.storage_offset() else tensor


def channels_last_linearly(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in channels_last as it is read as if it were contiguous, any other as it is."""
    is_wrong = tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last)
    return linearly(tensor) if is_wrong else tensor


def expanded_densely(tensor: torch.Tensor) -> torch.Tensor:
    """Return an expanded tensor as it is read as if each element had memory of its own, any other as it is."""
    return linearly(tensor) if 0 in tensor.stride() else tensor


def with_swapped_strides(tensor: torch.Tensor) -> torch.Tensor:
    """Return a matrix as a product reads it that takes its transposition for none."""
    if tensor.dim() != 2 or tensor.shape[0] != tensor.shape[1] or tensor.is_contiguous():
        return tensor
    return tensor.t()


class Misreading(SimDevice):
    """Computes on what a function makes of each argument of a forward call that has elements; it writes where asked."""

    name = "misreading"

    def __init__(self, misread: Misread, *, written: bool = False) -> None:
        self._misread = misread
        self._written = written

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        if record.endswith(".backward"):
            return func(*args, **kwargs)
        first = args[0] if self._written else None

        def read(tensor: torch.Tensor) -> torch.Tensor:
            return tensor if tensor is first or not tensor.numel() else self._misread(tensor)

        return func(*map_tensors(read, tuple(args)), **map_tensors(read, dict(kwargs)))


class MisreadingGradients(SimDevice):
    """Computes gradients with what a function makes of the arriving ones."""

    name = "misreading"

    def __init__(self, misread: Misread) -> None:
        self._misread = misread

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        if record.endswith(".backward"):
            outputs, arriving, leaves = args
            args = outputs, tuple(map(self._misread, arriving)), leaves
        return func(*args, **kwargs)


class MisreadingSaved(SimDevice):
    """Returns gradients that belong to the input as it is read as if it were contiguous."""

    name = "misreading"

    def __init__(self) -> None:
        self._input: torch.Tensor | None = None
        self._call: Any = None

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        if record.endswith(".forward"):
            self._call = func, args, kwargs
            return func(*args, **kwargs)
        forward, given, named = self._call
        _, arriving, _ = args
        wrong = [linearly(each.detach()).requires_grad_() for each in given if isinstance(each, torch.Tensor)]
        again = iter(wrong)
        with torch.enable_grad():
            output = forward(*map_tensors(lambda _: next(again), tuple(given)), **named)
        return torch.autograd.grad(output, wrong, arriving)


class WritingAround(SimDevice):
    """Does in place what is asked, and to what lies between the first and the last element of the argument too."""

    name = "writing-around"

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        result = func(*args, **kwargs)
        first = kwargs.get("out", args[0])
        if record.endswith(".forward"):
            between = first.detach().as_strided((span(first.shape, first.stride()),), (1,)).data
            right = first.detach().clone()
            between.copy_(right.reshape(-1)[torch.arange(between.numel()) % right.numel()])
            first.detach().data.copy_(right)
        return result


class WritingBehind(SimDevice):
    """Does in place what is asked, and writes one element behind the argument's last one."""

    name = "writing-behind"

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        result = func(*args, **kwargs)
        end = args[0].storage_offset() + span(args[0].shape, args[0].stride())
        memory = whole_memory(args[0]).data
        memory[end : end + 1] = 0.0
        return result


class WritingLinearly(SimDevice):
    """Writes in place as if the argument were contiguous."""

    name = "writing-linearly"

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        first = args[0]
        if record.endswith(".backward") or first.is_contiguous():
            return func(*args, **kwargs)
        right = func(first.detach().clone(memory_format=torch.contiguous_format), *args[1:], **kwargs)
        memory = whole_memory(first).data[first.storage_offset() :]
        memory[: right.numel()] = right.reshape(-1)[: memory.numel()]
        return first
