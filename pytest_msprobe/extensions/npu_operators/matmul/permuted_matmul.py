"""Plain products, and products of transposed, gathered and fused matrices."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import torch
import torch.nn.functional as F

from pytest_msprobe.engine.replay.ops.operators import golden
from pytest_msprobe.engine.replay.ops.traits import OpInfo
from pytest_msprobe.extensions.npu_operators.arguments import at_least_float32, in_place, refuse
from pytest_msprobe.extensions.npu_operators.inputs import matmul_operands
from pytest_msprobe.extensions.npu_operators.matmul.operands import numbers, scale_and_offset, scaled_product
from pytest_msprobe.extensions.npu_operators.quantization.quantization import rounded
from pytest_msprobe.extensions.npu_operators.quantization.quantized_results import EIGHT_BITS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


@golden("NPU.npu_linear")
def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight^T + bias."""
    return F.linear(input, weight, bias)


@golden("Aten.npu_linear_backward")
def npu_linear_backward(grad: Tensor, input: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of :func:`npu_linear` for input and weight; any number of leading dimensions."""
    return grad @ weight, grad.flatten(0, -2).mT @ input.flatten(0, -2)


@golden("Aten.matmul_backward")
def matmul_backward(
    grad: Tensor, self: Tensor, other: Tensor, mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of ``torch.matmul`` for self and other, None where ``mask`` is false.

    Every rank that matmul takes: vectors, matrices, batches with broadcasting.
    """
    left = self.unsqueeze(0) if self.dim() == 1 else self
    right = other.unsqueeze(-1) if other.dim() == 1 else other
    rows = grad.unsqueeze(-1) if other.dim() == 1 else grad
    rows = rows.unsqueeze(-2) if self.dim() == 1 else rows
    grad_self = (rows @ right.mT).sum_to_size(left.shape).reshape(self.shape) if mask[0] else None
    grad_other = (left.mT @ rows).sum_to_size(right.shape).reshape(other.shape) if mask[1] else None
    return grad_self, grad_other


@golden("NPU.npu_bmmV2")
def npu_bmmV2(self: Tensor, mat2: Tensor, output_sizes: Sequence[int]) -> Tensor:  # noqa: N802
    """Return the product of self and mat2, batches broadcast, in the shape ``output_sizes`` unless that is empty."""
    product = self @ mat2
    return product.reshape(*output_sizes) if output_sizes else product


@golden("NPU.npu_transpose_batchmatmul", OpInfo(constraint=matmul_operands.packed_scales, quantizes=EIGHT_BITS))
def npu_transpose_batchmatmul(
    input: Tensor,
    weight: Tensor,
    *,
    bias: Tensor | None = None,
    scale: Tensor | None = None,
    perm_x1: Sequence[int] | None = None,
    perm_x2: Sequence[int] | None = None,
    perm_y: Sequence[int] | None = None,
    batch_split_factor: int | None = 1,
) -> Tensor:
    """Return the product of both, each permuted to (batch, m, k) and (batch, k, n), permuted by ``perm_y``.

    Defaults are (0, 1, 2), (0, 1, 2) and (1, 0, 2). With ``scale``, packed, of (batch * n,), the result is int8
    (m, 1, batch * n). With a ``batch_split_factor`` f, the batch is cut into f: (f, m, batch * n / f).
    Raises NotImplementedError for ``bias``, which torch_npu refuses.
    """
    refuse("npu_transpose_batchmatmul", bias=bias)
    left, right = input.permute(*(perm_x1 or (0, 1, 2))), weight.permute(*(perm_x2 or (0, 1, 2)))
    out = (left @ right).permute(*(perm_y or (1, 0, 2)))
    if scale is not None:
        factor, shift = scale_and_offset(scale)
        scaled = out.flatten(1).double() * factor
        out = rounded(scaled if shift is None else scaled + shift).unsqueeze(1)
    return _split_batch(out, batch_split_factor)


def _split_batch(out: Tensor, parts: int | None) -> Tensor:
    """Move the parts of the batch of a result (m, batch, n) to the front, each (m, batch / parts * n)."""
    if parts in (None, 1):
        return out
    return out.reshape(out.shape[0], parts, -1).transpose(0, 1)


@golden("NPU.npu_transpose_quant_batchmatmul")
def npu_transpose_quant_batchmatmul(
    x1: Tensor, x2: Tensor, dtype: torch.dtype | int,
    *, bias: Tensor | None = None, x1_scale: Tensor | None = None, x2_scale: Tensor | None = None,
    group_sizes: Sequence[int] | None = None, perm_x1: Sequence[int] | None = None,
    perm_x2: Sequence[int] | None = None, perm_y: Sequence[int] | None = None,
    batch_split_factor: int | None = 1, x1_dtype: int | None = None, x2_dtype: int | None = None,
) -> Tensor:  # fmt: skip
    """Return ((x1 @ x2 + bias) * x2_scale * x1_scale) of floats of 8 bits, permuted as the one without quantization.

    ``x1_scale`` is (m,) and ``x2_scale`` (n,), or both have a last dimension of 2 for pairs of blocks of 32 behind
    those of their operand, with which they are permuted. Source: op-plugin's documentation.
    """
    api = "npu_transpose_quant_batchmatmul"
    left, left_scale = _permuted(numbers(api, x1, x1_dtype), x1_scale, perm_x1)
    right, right_scale = _permuted(numbers(api, x2, x2_dtype), x2_scale, perm_x2)
    out = scaled_product(left, right, right_scale, left_scale, bias=bias, group_sizes=group_sizes)
    out = _split_batch(out.permute(*(perm_y or (1, 0, 2))), batch_split_factor)
    return out.to(dtype) if isinstance(dtype, torch.dtype) else out


def _permuted(x: Tensor, scale: Tensor | None, order: Sequence[int] | None) -> tuple[Tensor, Tensor | None]:
    places = tuple(order or (0, 1, 2))
    has_blocks = scale is not None and scale.dim() > x.dim()
    return x.permute(*places), scale.permute(*places, 3) if scale is not None and has_blocks else scale


@golden("NPU.npu_fused_matmul")
def npu_fused_matmul(
    x1: Tensor, x2: Tensor, *, bias: Tensor | None = None, x3: Tensor | None = None, fused_op_type: str = ""
) -> Tensor:
    """Return x1 @ x2 + bias, followed by what ``fused_op_type`` names.

    That is nothing ("" and "16cast32", which returns float32), "add" and "mul" of ``x3``, "gelu_erf", "gelu_tanh" or
    "relu". Raises NotImplementedError for another one.
    """
    refuse("npu_fused_matmul", **{f"fused_op_type {fused_op_type}": None if fused_op_type in _FOLLOWING else ""})
    product = x1 @ x2
    out = _FOLLOWING[fused_op_type](product if bias is None else product + bias)
    if x3 is None:
        return out
    return out * x3 if fused_op_type == "mul" else out + x3


def _same(y: Tensor) -> Tensor:
    return y


_FOLLOWING: dict[str, Callable[[Tensor], Tensor]] = {
    "": _same,
    "16cast32": at_least_float32,
    "add": _same,
    "mul": _same,
    "gelu_erf": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


@golden("NPU.npu_batch_gather_matmul", OpInfo(constraint=matmul_operands.gathered_weights))
def npu_batch_gather_matmul(
    self: Tensor, x: Tensor, weight_b: Tensor, indices: Tensor, weight_a: Tensor | None = None,
    layer_idx: int = 0, scale: float = 1e-3, y_offset: int = 0, y_slice_size: int = -1,
) -> Tensor:  # fmt: skip
    """Return ``self`` with x @ weight_a^T @ weight_b^T * scale added to its columns from ``y_offset`` on.

    ``weight_a`` is (w, layers, r, h1), ``weight_b`` (w, layers, h2, r); ``indices`` choose the weights of each row, a
    negative one none. Without ``weight_a`` there is one product. As many columns change as ``weight_b`` has rows
    (assumed where ``y_slice_size`` is -1; ValueError where it is another number).
    Source: op-plugin's documentation, and Hu et al., LoRA, 2021.
    """
    columns = weight_b.shape[2]
    if y_slice_size not in (-1, columns):
        raise ValueError(f"y_slice_size is {y_slice_size} for a weight_b of {columns} rows")
    adapters = indices.long().clamp(min=0)
    rows = x.unsqueeze(1)
    if weight_a is not None:
        rows = rows @ weight_a[adapters, layer_idx].mT
    added = (rows @ weight_b[adapters, layer_idx].mT).squeeze(1) * scale
    added = added * (indices >= 0).to(added.dtype).unsqueeze(-1)
    return self + F.pad(added, (y_offset, self.shape[1] - y_offset - columns))


npu_batch_gather_matmul_ = golden("NPU.npu_batch_gather_matmul_", OpInfo(constraint=matmul_operands.gathered_weights))(
    in_place(npu_batch_gather_matmul)
)


@golden("Aten.npu_bmm_v2_mat1_backward")
def npu_bmm_v2_mat1_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: Sequence[int]) -> Tensor:
    """Return the gradient of ``npu_bmmV2`` for its first operand, in the shape ``size``."""
    gradient, _ = matmul_backward(_of_product(grad, mat1, mat2), mat1, mat2, (True, False))
    return cast("Tensor", gradient).reshape(*size)


@golden("Aten.npu_bmm_v2_mat2_backward")
def npu_bmm_v2_mat2_backward(grad: Tensor, mat1: Tensor, mat2: Tensor, size: Sequence[int]) -> Tensor:
    """Return the gradient of ``npu_bmmV2`` for its second operand, in the shape ``size``."""
    _, gradient = matmul_backward(_of_product(grad, mat1, mat2), mat1, mat2, (False, True))
    return cast("Tensor", gradient).reshape(*size)


def _of_product(grad: Tensor, mat1: Tensor, mat2: Tensor) -> Tensor:
    """Return a gradient in the shape of the product, which ``npu_bmmV2`` may have reshaped."""
    batch: torch.Size = torch.broadcast_shapes(mat1.shape[:-2], mat2.shape[:-2])  # type: ignore[no-untyped-call]
    rows = mat1.shape[-2:-1] if mat1.dim() > 1 else ()
    columns = mat2.shape[-1:] if mat2.dim() > 1 else ()
    return grad.reshape(*batch, *rows, *columns)
