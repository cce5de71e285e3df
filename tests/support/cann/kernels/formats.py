"""Casts of dtypes and of formats. A format is remembered with the memory, whose numbers stay where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tests.support.cann.kernels.memory import on_card, seen_by_host

ND = 2
_FORMAT = "simulated_format"


def format_of(tensor: Tensor) -> int:
    """Return the number of a tensor's format, that of plain dimensions where none was set."""
    return int(vars(tensor.untyped_storage()).get(_FORMAT, ND))


def _set_format(tensor: Tensor, number: int) -> Tensor:
    vars(tensor.untyped_storage())[_FORMAT] = int(number)
    return tensor


def _in_format(self: Tensor, acl_format: int, *_: Any, **__: Any) -> Tensor:
    with torch._C.DisableTorchFunction():
        return _set_format(on_card(seen_by_host(self), self.device), acl_format)


def _like(self: Tensor, dst: Tensor) -> Tensor:
    return _in_format(self, format_of(dst))


def _into_format_of(self: Tensor, src: Tensor) -> Tensor:
    return _set_format(self, format_of(src))


def _cast(self: Tensor, dtype: torch.dtype, *_: Any) -> Tensor:
    with torch._C.DisableTorchFunction():
        return on_card(seen_by_host(self).to(dtype), self.device)


def _cast_in_place(self: Tensor, src: Tensor) -> Tensor:
    with torch._C.DisableTorchFunction():
        seen_by_host(self).copy_(seen_by_host(src))
    return self


KERNELS: dict[str, Callable[..., Any]] = {
    "npu_dtype_cast": _cast,
    "_npu_dtype_cast": _cast,
    "npu_dtype_cast_backward": _cast,
    "_npu_dtype_cast_backward": _cast,
    "npu_dtype_cast_": _cast_in_place,
    "npu_format_cast": _in_format,
    "npu_format_cast.Tensor": _like,
    "npu_format_cast_": _into_format_of,
    "npu_format_cast_.acl_format": _set_format,
    "_npu_format_cast": _in_format,
    "_npu_format_cast.aclnn": _in_format,
    "_npu_format_cast.input_dtype": _in_format,
    "get_npu_format": format_of,
}
