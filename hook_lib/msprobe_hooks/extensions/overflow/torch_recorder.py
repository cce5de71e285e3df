"""Search for inf and nan in PyTorch: one pass over a call's results on a host, one reduction for many on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from msprobe_hooks.extensions.overflow.recorder import OverflowRecorder
from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.torch.recorder import TorchRecorder, version_of
from msprobe_hooks.torch.statistics import is_readable, local_part

# Sums of these would overflow where no element does.
_WIDER = {torch.float16: torch.float32}


class TorchOverflowRecorder(OverflowRecorder, TorchRecorder):
    """Looks for inf and nan in what runs in PyTorch."""

    def version(self, tensor: Tensor) -> int:
        """Return the version counter; a tensor of inference mode has none."""
        return version_of(tensor)

    def tensors_of(self, values: Any) -> list[tuple[Tensor, int]]:
        """Return the tensors among nested values, each with its version."""
        return [(tensor, version_of(tensor)) for tensor in tensors_in(values, Tensor)]

    def looks(self, tensor: Tensor) -> tuple[torch.Size, torch.dtype, bool]:
        """Return shape, dtype and whether a gradient is required."""
        return tensor.shape, tensor.dtype, tensor.requires_grad

    def blank(self, looks: tuple[torch.Size, torch.dtype, bool]) -> Tensor:
        """Return a tensor on no device."""
        shape, dtype, requires_grad = looks
        return torch.empty(shape, dtype=dtype, device="meta", requires_grad=requires_grad)

    def alias(self, tensor: Tensor) -> Tensor:
        """Return the detached tensor, which shares the version counter."""
        return tensor.detach().requires_grad_(tensor.requires_grad)

    def is_view_of(self, tensor: Tensor, others: Sequence[tuple[Tensor, int]]) -> bool:
        """Check the tensor that it is a view of."""
        base = tensor._base
        return base is not None and any(other is base or other._base is base for other, _ in others)

    def is_differentiated(self, outputs: Sequence[tuple[Tensor, int]]) -> bool:
        """Return whether any requires a gradient."""
        return True in [tensor.requires_grad for tensor, _ in outputs]

    def is_finite(self, tensor: Tensor) -> bool | None:
        """Check the sum, which is the fastest pass that there is, and where it is not finite by the extrema."""
        part = tensor if type(tensor) is Tensor else local_part(tensor)
        if not _can_overflow(part):
            return True
        if not part.is_cpu:
            return True if part.is_cuda and torch.cuda.is_current_stream_capturing() else None
        part = _native(part)
        total = torch.sum(part, dtype=_WIDER.get(part.dtype)).item()
        return total - total == 0 or _has_finite_extrema(part)

    def size(self, tensor: Tensor) -> int:
        """Return the bytes of the elements."""
        return tensor.numel() * tensor.element_size()

    def witnesses(self, tensors: Sequence[Tensor]) -> list[float | Tensor]:
        """Return 0 for what is finite on the host, and for what is on a device its largest absolute value."""
        answers = [self.is_finite(tensor) for tensor in tensors]
        witnesses: list[float | Tensor] = [math.nan if answer is False else 0.0 for answer in answers]
        on_devices: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for place, answer in enumerate(answers):
            if answer is None:
                on_devices.setdefault((tensors[place].device, tensors[place].dtype), []).append(place)
        for places in on_devices.values():
            norms = torch._foreach_norm([_native(local_part(tensors[place])) for place in places], math.inf)
            for place, norm in zip(places, norms, strict=True):
                witnesses[place] = norm
        return witnesses

    def numbers(self, witnesses: Sequence[float | Tensor]) -> list[float]:
        """Fetch witnesses to the host, with one transfer per device and dtype."""
        numbers = [0.0 if isinstance(one, Tensor) else one for one in witnesses]
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, Tensor]]] = {}
        for place, one in enumerate(witnesses):
            if isinstance(one, Tensor):
                groups.setdefault((one.device, one.dtype), []).append((place, one))
        for group in groups.values():
            for (place, _), number in zip(group, torch.stack([one for _, one in group]).tolist(), strict=True):
                numbers[place] = number
        return numbers


def _has_finite_extrema(tensor: Tensor) -> bool:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    # Of which NaN is one wherever it is among the elements.
    least, most = torch.aminmax(tensor)
    return math.isfinite(least.item()) and math.isfinite(most.item())


def _can_overflow(tensor: Tensor) -> bool:
    dtype = tensor.dtype
    return (dtype.is_floating_point or dtype.is_complex) and is_readable(tensor) and tensor.numel() > 0


def _native(tensor: Tensor) -> Tensor:
    dtype = tensor.dtype
    return tensor.float() if dtype.is_floating_point and dtype.itemsize == 1 else tensor
