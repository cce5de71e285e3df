"""MindSpore's APIs whose arguments or defaults differ from torch's function of the same name, defined in torch.

Each has MindSpore's signature; the names of arguments are MindSpore's too. ``mint`` follows torch and needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.extensions.mindspore.functional_layers import LAYERS


def astype(self: Tensor, dtype: torch.dtype | str, copy: bool = True) -> Tensor:
    """Return the tensor in another dtype, which may be given by its name."""
    return self.to(dtype if isinstance(dtype, torch.dtype) else dtype_named(dtype), copy=copy)


def _extremum_method(function: Callable[..., Any], along: Callable[..., Tensor]) -> Callable[..., Any]:
    def as_numpy_does(
        self: Tensor,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        *,
        initial: float | None = None,
        where: Tensor | bool = True,
        return_indices: bool = False,
    ) -> Any:
        if axis is None:
            # The other arguments then have no effect, as MindSpore documents.
            return function(self)
        if initial is not None or where is not True:
            raise NotImplementedError("an extremum with initial or where has no golden definition")
        return function(self, axis, keepdims) if return_indices else along(self, axis, keepdims)

    def extremum(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        if kwargs.keys() <= {"dim", "keepdim"} and all(isinstance(arg, int) for arg in args):
            return function(self, *args, **kwargs)
        return as_numpy_does(self, *args, **kwargs)

    return extremum


METHODS: dict[str, Callable[..., Any]] = {
    "Tensor.astype": astype,
    "Tensor.max": _extremum_method(torch.max, torch.amax),
    "Tensor.min": _extremum_method(torch.min, torch.amin),
}


Shape: TypeAlias = "int | Sequence[int] | Tensor"


def _sizes(shape: Shape) -> Sequence[int]:
    if isinstance(shape, Tensor):
        return [int(size) for size in shape.reshape(-1)]
    return [shape] if isinstance(shape, int) else shape


def ones(shape: Shape, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor of ones, by default of float32."""
    return torch.ones(_sizes(shape), dtype=dtype)


def zeros(size: Shape, dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor of zeros, by default of float32."""
    return torch.zeros(_sizes(size), dtype=dtype)


def fill(type: torch.dtype | None, shape: Shape, value: float) -> Tensor:  # noqa: A002
    """Return a tensor of one value, of that value's own dtype where none is given."""
    return torch.full(_sizes(shape), value, dtype=type)


def eye(n: int, m: int | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """Return ones on the diagonal of a matrix, by default a square one of float32, and zeros off it."""
    return torch.eye(n, n if m is None else m, dtype=dtype)


CREATION: dict[str, Callable[..., Any]] = {
    f"Functional.{function.__name__}": function for function in (ones, zeros, fill, eye)
}


def gather(input_params: Tensor, input_indices: Tensor, axis: int, batch_dims: int = 0) -> Tensor:
    """Return slices at the indices along an axis, which the shape of the indices takes the place of."""
    if batch_dims:
        raise NotImplementedError("gather with batch_dims has no golden definition")
    picked = input_params.index_select(axis, input_indices.reshape(-1))
    axis %= input_params.dim()
    return picked.reshape(*input_params.shape[:axis], *input_indices.shape, *input_params.shape[axis + 1 :])


def _ddof(function: Callable[..., Any]) -> Callable[..., Any]:
    def spread(input: Tensor, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:  # noqa: A002
        return function(input, axis, correction=int(ddof), keepdim=keepdims)

    return spread


def _ddof_method(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a method that takes ``dim`` and ``correction`` too, which make it torch's."""

    def spread(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        is_torchs = kwargs.keys() & {"dim", "correction", "keepdim"}
        return function(self, *args, **kwargs) if is_torchs else _ddof(function)(self, *args, **kwargs)

    return spread


def aminmax(input: Tensor, *, axis: int | None = 0, keepdims: bool = False) -> Any:  # noqa: A002
    """Return the least and the greatest values along an axis, by default the first."""
    return torch.aminmax(input, dim=axis, keepdim=keepdims)


def _without_factors(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def svd(input: Tensor, full_matrices: bool = False, compute_uv: bool = True) -> Tensor:  # noqa: A002
        if compute_uv:
            raise NotImplementedError("the factors of svd, in MindSpore's order, have no golden definition")
        return function(input)

    return svd


def unique(input: Tensor) -> Any:  # noqa: A002
    """Raise NotImplementedError: MindSpore does not say in which order the elements come."""
    raise NotImplementedError("unique, whose order differs by device, has no golden definition")


def _extremum(function: Callable[..., Any]) -> Callable[..., Any]:
    def extremum(input: Tensor, axis: int | None = None, keepdims: bool = False) -> Any:  # noqa: A002
        if axis is None:
            raise NotImplementedError("the index that MindSpore returns without an axis has no golden definition")
        return function(input, axis, keepdims)

    return extremum


def one_hot(indices: Tensor, depth: int, on_value: Any = 1, off_value: Any = 0, axis: int = -1) -> Tensor:
    """Return ``on_value`` where the new axis has the index, ``off_value`` otherwise."""
    hit = (indices.unsqueeze(-1) == torch.arange(depth)).movedim(-1, axis)
    on, off = (value if isinstance(value, Tensor) else torch.tensor(value) for value in (on_value, off_value))
    return torch.where(hit, on, off)


def flatten(input: Tensor, order: str = "C", *, start_dim: int = 1, end_dim: int = -1) -> Tensor:  # noqa: A002
    """Return the input with several axes made one, by default all but the first."""
    if order != "C":
        raise NotImplementedError("flatten in column order has no golden definition")
    return torch.flatten(input, start_dim, end_dim)


def meshgrid(*inputs: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Return grids of coordinates; the first two axes change places by default."""
    return torch.meshgrid(*inputs, indexing=indexing)


def median(input: Tensor, axis: int = -1, keepdims: bool = False) -> Any:  # noqa: A002
    """Return the middle values along an axis, by default the last, and their places."""
    return torch.median(input, axis, keepdims)


def addn(x: Sequence[Tensor]) -> Tensor:
    """Return the sum of all tensors."""
    return torch.stack(list(x)).sum(0)


def gather_nd(input_x: Tensor, indices: Tensor) -> Tensor:
    """Return the elements, or slices, at places that lie along the last axis of the indices."""
    return input_x[tuple(indices.long().unbind(-1))]


def dot(input: Tensor, other: Tensor) -> Tensor:  # noqa: A002
    """Return sums of products along the last axis of the one and the last but one of the other."""
    product: Tensor = torch.tensordot(input, other, ([-1], [-2]))
    return product


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:  # noqa: A002
    """Return how often each number occurs, or the sums of its weights, in float32."""
    return torch.bincount(input, weights, minlength).float()


def expand(input: Tensor, size: Shape) -> Tensor:  # noqa: A002
    """Return the input repeated to a shape, which may be a tensor."""
    return input.expand(*_sizes(size))


def index_add(
    x: Tensor, indices: Tensor, y: Tensor, axis: int, use_lock: bool = True, check_index_bound: bool = True
) -> Tensor:
    """Return the input with ``y`` added at indices along an axis."""
    return x.index_add(axis, indices, y)


def index_fill(x: Tensor, axis: int, index: Tensor, value: Any) -> Tensor:
    """Return the input with a value at indices, of 32 bits too, along an axis."""
    return x.index_fill(int(axis), index.long(), value)


def ldexp(x: Tensor, other: Tensor) -> Tensor:
    """Return the input times two to the power of the other; torch's gradient takes no negative whole powers."""
    return x * torch.pow(2.0, other.to(x.dtype))


def tensor_scatter_elements(
    input_x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Return the input with updates at indices along an axis, or with them added."""
    along = input_x.scatter_add if reduction == "add" else input_x.scatter
    return along(axis, indices.long(), updates)


def sequence_mask(lengths: Tensor, maxlen: int | None = None) -> Tensor:
    """Return rows that are true for the first so many positions."""
    return torch.arange(maxlen or int(lengths.max())) < lengths.unsqueeze(-1)


def tensor_transpose(self: Tensor, *axes: Any) -> Tensor:
    """Return it with two axes changed for each other, or all axes in a new order."""
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], (list, tuple)) else axes
    return self.transpose(*order) if len(axes) == 2 else self.permute(*order)


def tensor_repeat(self: Tensor, *repeats: Any, axis: int | None = None) -> Tensor:
    """Return the tensor repeated along each axis; by numpy's rule where an axis is given."""
    return self.repeat(*repeats) if axis is None else self.repeat_interleave(repeats[0], dim=axis)


def host_copy(self: Tensor) -> Tensor:
    """Return the same values, outside of the device."""
    return self.clone()


def cast(input: Any, dtype: torch.dtype) -> Tensor:  # noqa: A002
    """Return a tensor, or a number as one, in another dtype."""
    return torch.as_tensor(input).to(dtype)


def rank(input_x: Tensor) -> int:
    """Return how many axes a tensor has."""
    return input_x.dim()


def size(self: Tensor) -> int:
    """Return the number of elements: MindSpore's ``size`` is numpy's."""
    return self.numel()


DEFINITIONS: dict[str, Callable[..., Any]] = {
    **{
        f"Functional.{function.__name__}": function
        for function in (
            gather, one_hot, flatten, meshgrid, median, addn, rank, aminmax, gather_nd, index_fill, ldexp, unique,
            sequence_mask, tensor_scatter_elements, dot, bincount, expand, index_add,
        )
    },
    "Functional.std": _ddof(torch.std),
    "Functional.var": _ddof(torch.var),
    "Functional.std_mean": _ddof(torch.std_mean),
    "Functional.var_mean": _ddof(torch.var_mean),
    "Functional.accumulate_n": addn,
    "Functional.approximate_equal": lambda x, y, tolerance=1e-5: (x - y).abs() < tolerance,
    "Functional.repeat_elements": lambda x, rep, axis=0: x.repeat_interleave(rep, axis),
    "Functional.svd": _without_factors(torch.linalg.svdvals),
    "Functional.truncate_div": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "Functional.xdivy": lambda x, y: torch.where(x == 0, torch.zeros_like(x / y), x / y),
    "Tensor.bincount": bincount,
    "Tensor.index_fill": index_fill,
    "Tensor.ldexp": ldexp,
    "Tensor.std": _ddof_method(torch.std),
    "Tensor.svd": _without_factors(torch.linalg.svdvals),
    "Tensor.var": _ddof_method(torch.var),
    "Functional.max": _extremum(torch.max),
    "Functional.min": _extremum(torch.min),
    "Functional.cast": cast,
    "Tensor.transpose": tensor_transpose,
    "Tensor.repeat": tensor_repeat,
    "Tensor.numpy": host_copy,
    "Tensor.asnumpy": host_copy,
    "Tensor.size": size,
    "Functional.size": size,
    **CREATION,
    **METHODS,
    **LAYERS,
}  # fmt: skip
