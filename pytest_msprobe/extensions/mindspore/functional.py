"""MindSpore's APIs whose arguments or defaults differ from torch's function of the same name, defined in torch.

Each has MindSpore's signature; the names of arguments are MindSpore's too. ``mint`` follows torch and needs none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.engine.values.dtypes import dtype_named


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


def softmin(x: Tensor, axis: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:
    """Return softmax of the negative input along an axis, by default the last."""
    return torch.softmax(-x, axis, dtype=dtype)


def softmax(input: Tensor, axis: int = -1, *, dtype: torch.dtype | None = None) -> Tensor:  # noqa: A002
    """Return exponentials divided by their sum along an axis, by default the last."""
    return torch.softmax(input, axis, dtype)


def log_softmax(logits: Tensor, axis: int = -1) -> Tensor:
    """Return the logarithm of softmax along an axis, by default the last."""
    return torch.log_softmax(logits, axis)


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


def cross_entropy(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the cross entropy of logits against class numbers or probabilities."""
    target = target if target.is_floating_point() else target.long()
    return F.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def nll_loss(
    inputs: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Return the negative log likelihood of class numbers."""
    if label_smoothing:
        raise NotImplementedError("nll_loss with label_smoothing has no golden definition")
    return F.nll_loss(inputs, target.long(), weight, ignore_index=ignore_index, reduction=reduction)


def _loss(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:  # noqa: A002
        return function(input, target, reduction=reduction)

    return loss


def hinge_embedding_loss(inputs: Tensor, targets: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return the loss of distances against labels 1 and -1; of others MindSpore and torch make different numbers."""
    if not bool((targets.abs() == 1).all()):
        raise NotImplementedError("hinge_embedding_loss with labels other than 1 and -1 has no golden definition")
    return F.hinge_embedding_loss(inputs, targets, margin, reduction=reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, beta: float = 1.0, reduction: str = "none") -> Tensor:  # noqa: A002
    """Return the squared error below ``beta``, absolute error above."""
    return F.smooth_l1_loss(input, target, beta=beta, reduction=reduction)


def binary_cross_entropy(
    logits: Tensor, labels: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """Return the cross entropy of probabilities, which MindSpore calls logits, against labels."""
    return F.binary_cross_entropy(logits, labels, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Return the cross entropy of logits against labels."""
    return F.binary_cross_entropy_with_logits(input, target, weight, pos_weight=pos_weight, reduction=reduction)


def kl_div(logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
    """Return the divergence of log probabilities from labels."""
    return F.kl_div(logits, labels, reduction=reduction)


def _conv(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def conv(
        input: Tensor,  # noqa: A002
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        pad_mode: str = "valid",
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        if pad_mode == "same" and any(step != 1 for step in (stride if isinstance(stride, Sequence) else [stride])):
            raise NotImplementedError("a strided convolution with pad_mode same has no golden definition")
        pad = {"valid": 0, "same": "same"}.get(pad_mode, padding)
        return function(input, weight, bias, stride=stride, padding=pad, dilation=dilation, groups=groups)

    return conv


def _avg_pool(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def avg_pool(
        input_x: Tensor,
        kernel_size: Any = 1,
        stride: Any = 1,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int = 0,
    ) -> Tensor:
        divisor = {"divisor_override": divisor_override} if divisor_override else {}
        return function(input_x, kernel_size, stride, padding, ceil_mode, count_include_pad, **divisor)

    return avg_pool


def leaky_relu(input: Tensor, alpha: float = 0.2) -> Tensor:  # noqa: A002
    """Return the input where it is positive, ``alpha`` times it otherwise."""
    return F.leaky_relu(input, alpha)


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


def lrn(x: Tensor, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5) -> Tensor:
    """Return the input over a power of its squares' sum in channels so near, as MindSpore documents."""
    size = 2 * depth_radius + 1
    return F.local_response_norm(x, size, alpha * size, beta, bias)


def tensor_scatter_elements(
    input_x: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "none"
) -> Tensor:
    """Return the input with updates at indices along an axis, or with them added."""
    along = input_x.scatter_add if reduction == "add" else input_x.scatter
    return along(axis, indices.long(), updates)


def sequence_mask(lengths: Tensor, maxlen: int | None = None) -> Tensor:
    """Return rows that are true for the first so many positions."""
    return torch.arange(maxlen or int(lengths.max())) < lengths.unsqueeze(-1)


def bias_add(input_x: Tensor, bias: Tensor) -> Tensor:
    """Return the input with a bias for each channel, the second axis."""
    return input_x + bias.reshape(1, -1, *([1] * (input_x.dim() - 2)))


def rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return the input over its root mean square along the axes of gamma, times gamma, and one over it."""
    axes = list(range(x.dim() - gamma.dim(), x.dim()))
    scale = torch.rsqrt(x.square().mean(axes, keepdim=True) + epsilon)
    return x * scale * gamma, scale


@cache
def _fusion_attention() -> Callable[..., Any]:
    definition = ReferenceRegistry().get("NPU.npu_fusion_attention")
    if definition is None:
        raise NotImplementedError("npu_fusion_attention has no golden definition here")
    return definition


def flash_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    real_shift: Tensor | None = None,
    drop_mask: Tensor | None = None,
    padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    keep_prob: float = 1.0,
    scalar_value: float = 1.0,
    pre_tokens: int = 2147483647,
    next_tokens: int = 2147483647,
    inner_precise: int = 0,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
) -> Tensor:
    """Return fused attention; see ``npu_fusion_attention``, whose first output it is."""
    if drop_mask is not None:
        raise NotImplementedError("flash_attention_score with drop_mask has no golden definition")
    attention: Tensor = _fusion_attention()(
        query,
        key,
        value,
        head_num,
        input_layout,
        pse=real_shift,
        padding_mask=padding_mask,
        atten_mask=attn_mask,
        scale=scalar_value,
        keep_prob=keep_prob,
        pre_tockens=pre_tokens,
        next_tockens=next_tokens,
        inner_precise=inner_precise,
        prefix=prefix,
        actual_seq_qlen=actual_seq_qlen,
        actual_seq_kvlen=actual_seq_kvlen,
        sparse_mode=sparse_mode,
    )[0]
    return attention


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
            softmax, log_softmax, gather, one_hot, cross_entropy, nll_loss, smooth_l1_loss, binary_cross_entropy,
            binary_cross_entropy_with_logits, kl_div, leaky_relu, flatten, meshgrid, median, addn, bias_add, rms_norm,
            flash_attention_score, rank, aminmax, softmin, gather_nd, index_fill, ldexp, lrn, tensor_scatter_elements,
            sequence_mask, unique, dot, bincount, expand, index_add, hinge_embedding_loss,
        )
    },
    "Functional.std": _ddof(torch.std),
    "Functional.var": _ddof(torch.var),
    "Functional.std_mean": _ddof(torch.std_mean),
    "Functional.var_mean": _ddof(torch.var_mean),
    "Functional.accumulate_n": addn,
    "Functional.approximate_equal": lambda x, y, tolerance=1e-5: (x - y).abs() < tolerance,
    "Functional.fast_gelu": lambda x: x / (1 + torch.exp(-1.702 * x)),
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
    "Functional.mse_loss": _loss(F.mse_loss),
    "Functional.l1_loss": _loss(F.l1_loss),
    **{f"Functional.conv{n}d": _conv(getattr(F, f"conv{n}d")) for n in (1, 2, 3)},
    **{f"Functional.avg_pool{n}d": _avg_pool(getattr(F, f"avg_pool{n}d")) for n in (1, 2, 3)},
    "Functional.cast": cast,
    "Tensor.transpose": tensor_transpose,
    "Tensor.repeat": tensor_repeat,
    "Tensor.numpy": host_copy,
    "Tensor.asnumpy": host_copy,
    "Tensor.size": size,
    "Functional.size": size,
    **CREATION,
    **METHODS,
}  # fmt: skip
