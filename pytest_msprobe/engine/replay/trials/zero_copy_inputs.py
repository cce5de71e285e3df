"""Large inputs that the CPU as a target computes with where they were drawn: a copy would double what a check holds."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from msprobe_hooks.dump.schema import tensors_of
from msprobe_standards.tensor_layouts import is_plain
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.device import Device
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import Subject
from pytest_msprobe.engine.replay.inputs.large_tensors import LARGE, is_large
from pytest_msprobe.engine.replay.partition import cuts_of
from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.engine.values.strides import memory_size

_OF_TORCH = ("Functional", "Torch", "Tensor")


def placement_for(device: Device, subject: Subject) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what brings a call's CPU tensors to its device.

    Copies, but for large ones on the CPU of a call that can be cut into blocks: those are torch's own operations that
    return no argument, and write to none of that size.
    """
    if not _is_cpu(device) or subject.target is not subject.golden or subject.key.partition(".")[0] not in _OF_TORCH:
        return device.put
    arguments = subject.arguments
    tensors = tensors_with_paths({"args": arguments.args, "kwargs": arguments.kwargs})
    large = {path for path, tensor in tensors if _size(tensor, path in arguments.layouts) >= LARGE}
    cuts = cuts_of(subject.operation, arguments) if large else []
    if not cuts or not large.isdisjoint(cuts[0].written):
        return device.put
    return lambda tensor: tensor.detach() if tensor.numel() >= LARGE else device.put(tensor)


def _size(tensor: torch.Tensor, is_laid_out: bool) -> int:
    """Return how many elements are brought to a device for a tensor: of one that is laid out, all of its storage."""
    return memory_size(tensor) if is_laid_out and is_plain(tensor) else tensor.numel()


def shared_bytes(call: Call, device: Device) -> int:
    """Return how many bytes of a call's tensors exist once on the CPU as a target, where it can be cut into blocks.

    Results and their gradients are judged where they were computed.
    """
    if not _is_cpu(device):
        return 0
    forward, backward = call.forward, call.backward
    elements = [*forward.args, *forward.kwargs.values(), *forward.output]
    if backward is not None:
        elements += [*backward.grad_outputs, *backward.grad_inputs]
    return sum(
        math.prod(element.shape) * dtype_named(element.dtype).itemsize
        for element in tensors_of(elements)
        if is_large(element)
    )


def _is_cpu(device: Device) -> bool:
    # A device that is made of this one may do other things with what it is given.
    return type(device) is CpuDevice
