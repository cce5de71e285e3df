"""Formats of quantised weights: codes, how far each is from where it changes, and the scales that they are times.

What is read: float8 and int8 with ``*_scale`` or ``*_scale_inv`` (one, one a row, a block, or a part of a fused
weight); 4 or 8 bits packed in int32 as AWQ (``qweight`` [in, out / 8]), GPTQ (``qweight`` [in / 8, out]) and
compressed-tensors (``weight_packed`` [out, in / 8]) store them; and float4, two in a byte, the first in the low bits,
with a scale for each block of a row: MXFP4 with powers of two (also the ``*_blocks`` and ``*_scales`` of gpt-oss),
NVFP4 with float8 scales that one more scale multiplies or, in compressed-tensors, divides. Stacks of matrices, as of
experts, are read as their matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import SharedParameter

Layout: TypeAlias = Literal["whole", "awq", "gptq", "compressed", "float4", "blocks"]
#: Returns how many rows each part of a fused weight has, by its name and the number of its rows; may raise
#: CheckpointError.
PartLengths: TypeAlias = Callable[[str, int], Sequence[int]]

_WHOLE = {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int8"}
_TWO_IN_A_BYTE = {"uint8", "float4_e2m1fn_x2"}
_POWERS_OF_TWO = {"uint8", "float8_e8m0fnu"}
_SCALES = ("_scale_inv", "_scale")
# AWQ: the nibble at place i of an int32 is that of this column (AutoAWQ, WQLinear_GEMM.from_linear).
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_WORD, _BYTE = 32, 8
# The usual sizes of blocks, the likeliest first.
_BLOCKS = (128, 64, 32, 16, 256, 512)
# E2M1 and E8M0: OCP Microscaling Formats (MX) Specification 1.0, tables 5 and 7. The quanta are half the way to the
# next value, the whole of it at the last one, which is clipped to.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_E2M1_QUANTA = (0.25, 0.25, 0.25, 0.25, 0.5, 0.5, 1.0, 2.0)
_E8M0_BIAS, _E8M0_NAN = 127, 255


@dataclass(frozen=True, slots=True)
class Quantised:
    """A quantised weight: the name that its values get, and its tensors, those after ``scale`` where it has them.

    ``second`` is one more scale of all or of each part; ``divides`` says that values are divided by it.
    """

    name: str
    layout: Layout
    codes: SharedParameter
    scale: SharedParameter
    zeros: SharedParameter | None = None
    groups: SharedParameter | None = None
    size: SharedParameter | None = None
    second: SharedParameter | None = None
    divides: bool = False

    @property
    def tensors(self) -> list[SharedParameter]:
        """All that it is stored in."""
        others = (self.scale, self.zeros, self.groups, self.size, self.second)
        return [self.codes, *(part for part in others if part is not None)]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values: [out, in] of packed ones, [in, out] of the blocks of gpt-oss, behind a stack's."""
        if self.layout == "whole":
            return self.codes.shape
        if self.layout == "blocks":
            *stack, rows, blocks, half = self.codes.shape
            return *stack, blocks * half * 2, rows
        *stack, first, last = self.codes.shape
        if self.layout == "awq":
            return *stack, self.scale.shape[-1], first
        if self.layout == "gptq":
            return *stack, last, first * _WORD // self.bits
        return *stack, first, last * (2 if self.layout == "float4" else _WORD // self.bits)

    @property
    def bits(self) -> int:
        """The number of bits of an int32's code, by its size or by how many of the zeros are in an int32, else 4."""
        along_in = self.codes.shape[-2 if self.layout == "gptq" else -1]
        if self.size is not None and self.size.shape[-1:] == (2,) and self.size.matrices[0].has_values:
            columns = self.size.matrices[0].load().flatten()[-1]
            if along_in * _WORD // max(int(columns), 1) == _BYTE:
                return _BYTE
        if self.zeros is None or self.layout == "awq":
            return 4
        along_out = -1 if self.layout == "gptq" else -2
        return max(_WORD * self.zeros.shape[along_out] // max(self.scale.shape[along_out], 1), 1)

    @property
    def words(self) -> str:
        """Its kind in words, for a reason."""
        if self.layout in ("float4", "blocks"):
            return f"float4 of {'MXFP4' if _dtype(self.scale) in _POWERS_OF_TWO else 'NVFP4'}"
        if self.layout != "whole":
            names = {"awq": "AWQ", "gptq": "GPTQ", "compressed": "compressed-tensors"}
            return f"int{self.bits} of {names[self.layout]}"
        dtype, scale, shape = _dtype(self.codes), self.scale.shape, self.shape
        if len(shape) == 3 and scale:
            scale, shape = scale[1:], shape[1:]
        if math.prod(scale) == 1:
            return f"{dtype} with one scale"
        if len(scale) == 1 and scale != shape[:1]:
            return f"{dtype} with a scale a part"
        if len(scale) < 2 or scale[-1] == 1:
            return f"{dtype} with a scale a row"
        blocks = [_block(have, size) for have, size in zip(scale[-2:], shape[-2:], strict=False)]
        return f"{dtype} with a scale for each {' x '.join(map(str, blocks))}"


@dataclass(frozen=True, slots=True)
class Decoded:
    """Codes less their zeros, how far each is from where it changes, and scales that broadcast to them, in float32.

    ``epsilon`` is the rounding of quantisers that divide by scales in bfloat16 or float16.
    """

    codes: Tensor
    quanta: Tensor
    scale: Tensor
    epsilon: float


def recognised(by_name: Mapping[str, SharedParameter], shared: SharedParameter) -> Quantised | None:
    """Return the quantised weight that has ``shared`` as its codes, None where it is none that is read."""
    name, dtype = shared.name, _dtype(shared)
    if dtype in _WHOLE:
        scale = next((by_name[name + suffix] for suffix in _SCALES if name + suffix in by_name), None)
        return None if scale is None else Quantised(name, "whole", shared, scale)
    if dtype in _TWO_IN_A_BYTE:
        return _float4(by_name, shared)
    if name.endswith("qweight"):
        prefix = name.removesuffix("qweight")
        scale = by_name.get(f"{prefix}scales")
        if scale is None or not _are_matrices(shared, scale):
            return None
        layout: Layout = "gptq" if shared.shape[-1] == scale.shape[-1] else "awq"
        rest = by_name.get(f"{prefix}qzeros"), by_name.get(f"{prefix}g_idx")
        return Quantised(f"{prefix}weight", layout, shared, scale, *rest)
    if name.endswith("weight_packed"):
        weight = name.removesuffix("_packed")
        scale = by_name.get(f"{weight}_scale")
        if scale is None or not _are_matrices(shared, scale):
            return None
        # vLLM has stacks of experts as [in / 8, out].
        is_upright = shared.shape[-2] == scale.shape[-2] or shared.shape[-1] != scale.shape[-1]
        zeros, groups, size = (by_name.get(f"{weight}_{suffix}") for suffix in ("zero_point", "g_idx", "shape"))
        return Quantised(weight, "compressed" if is_upright else "gptq", shared, scale, zeros, groups, size)
    return None


def _float4(by_name: Mapping[str, SharedParameter], shared: SharedParameter) -> Quantised | None:
    name = shared.name
    if name.endswith("_blocks"):
        weight = name.removesuffix("_blocks")
        scale = by_name.get(f"{weight}_scales")
        is_one = scale is not None and _dtype(scale) in _POWERS_OF_TWO and scale.shape == shared.shape[:-1]
        return Quantised(weight, "blocks", shared, scale) if is_one and scale is not None else None
    weight = name.removesuffix("_packed")
    scale = by_name.get(f"{weight}_scale")
    if scale is None or not _are_matrices(shared, scale) or shared.shape[-2] != scale.shape[-2]:
        return None
    if _dtype(scale) in _POWERS_OF_TWO:
        return Quantised(weight, "float4", shared, scale)
    if _dtype(scale) != "float8_e4m3fn":
        return None
    divisor = by_name.get(f"{weight}_global_scale")
    second = by_name.get(f"{weight}_scale_2") if divisor is None else divisor
    return Quantised(weight, "float4", shared, scale, second=second, divides=divisor is not None)


def _are_matrices(codes: SharedParameter, scale: SharedParameter) -> bool:
    return 2 <= len(codes.shape) == len(scale.shape) <= 3 and codes.shape[:-2] == scale.shape[:-2]


def _dtype(shared: SharedParameter) -> str:
    return shared.matrices[0].dtype if shared.matrices else ""


def decode(weight: Quantised, number: int, part_lengths: PartLengths, place: int | None = None) -> Decoded:
    """Return one matrix of a weight, or a stack that is one tensor: all of it, or the matrix in a ``place``.

    Raises CheckpointError.
    """
    count = len(weight.codes.matrices)
    stored = weight.codes.matrices[number].load()
    parts = (weight.scale, weight.zeros, weight.groups, weight.second)
    others = [None if part is None else _matrix(part, number, count) for part in parts]
    if stored.dim() < (4 if weight.layout == "blocks" else 3):
        return _decoded(weight, part_lengths, stored, *others)
    size = len(stored)
    places = range(size) if place is None else (place,)
    matrices = [
        _decoded(weight, part_lengths, stored[at], *(_at(other, at, size) for other in others)) for at in places
    ]
    if place is not None:
        return matrices[0]
    codes, quanta, scale = (
        torch.stack([getattr(one, name).expand(one.codes.shape) for one in matrices])
        for name in ("codes", "quanta", "scale")
    )
    return Decoded(codes, quanta, scale, matrices[0].epsilon)


def _at(part: Tensor | None, place: int, size: int) -> Tensor | None:
    return part[place] if part is not None and part.dim() and part.shape[0] == size else part


def _decoded(
    weight: Quantised,
    part_lengths: PartLengths,
    stored: Tensor,
    scale: Tensor | None,
    zeros: Tensor | None,
    groups: Tensor | None,
    second: Tensor | None,
) -> Decoded:
    """Return the one matrix of these tensors."""
    assert scale is not None
    epsilon = torch.finfo(scale.dtype if scale.dtype in (torch.bfloat16, torch.float16) else torch.float32).eps
    if weight.layout == "whole":
        spread = _spread(_as_scale(scale), stored.shape, weight.name, part_lengths)
        has_powers = _dtype(weight.scale) in _POWERS_OF_TWO
        return Decoded(stored.float(), _half_quantum(stored, has_powers=has_powers), spread, epsilon)
    if weight.layout in ("float4", "blocks"):
        return Decoded(*_of_bytes(weight, stored, _as_scale(scale), second, part_lengths), epsilon)
    return Decoded(*_of_words(weight, stored, scale.float(), zeros, groups), epsilon)


def _as_scale(scale: Tensor) -> Tensor:
    """Return scales in float32; bytes are the exponents of E8M0."""
    if scale.dtype not in (torch.uint8, torch.float8_e8m0fnu):
        return scale.float()
    exponents = scale.view(torch.uint8).int()
    powers = torch.ldexp(torch.ones(exponents.shape), exponents - _E8M0_BIAS)
    return torch.where(exponents == _E8M0_NAN, torch.nan, powers)


def _of_bytes(
    weight: Quantised, stored: Tensor, scale: Tensor, second: Tensor | None, part_lengths: PartLengths
) -> tuple[Tensor, Tensor, Tensor]:
    """Return two values of each byte, the first of the low bits, their quanta, and the scales of their blocks."""
    if weight.layout == "blocks":
        stored = stored.flatten(-2)
    stored = stored.view(torch.uint8)
    pairs = torch.stack([stored & 15, stored >> 4], dim=-1).flatten(-2).long()
    sizes = pairs & 7
    codes = torch.where(pairs < 8, 1.0, -1.0) * torch.tensor(_E2M1)[sizes]
    quanta = torch.tensor(_E2M1_QUANTA)[sizes]
    if not scale.numel() or codes.shape[-1] % scale.shape[-1]:
        raise CheckpointError(f"scales of {weight.name} have shape {list(scale.shape)}, its codes {list(stored.shape)}")
    scale = scale.repeat_interleave(codes.shape[-1] // scale.shape[-1], -1)
    if second is not None:
        spread = _spread(second.float(), codes.shape, weight.name, part_lengths)
        scale = scale / spread if weight.divides else scale * spread
    return (codes.t(), quanta.t(), scale.t()) if weight.layout == "blocks" else (codes, quanta, scale)


def _of_words(
    weight: Quantised, stored: Tensor, scale: Tensor, zeros: Tensor | None, indices: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes less zeros, quanta and scales [out, in] of a matrix that is packed in int32."""
    bits, last = weight.bits, 2**weight.bits - 1
    if bits not in (4, _BYTE) or not stored.numel() or stored.dtype.is_floating_point:
        raise CheckpointError(f"{weight.codes.name} with its zeros does not hold codes of 4 or 8 bits")
    along_in = _unpacked(stored if weight.layout != "gptq" else stored.t(), bits)
    if weight.layout == "awq":
        along_in = _in_order(along_in).t()
    # From here on [out, in], with scales and zeros [out, groups].
    scales = scale if weight.layout == "compressed" else scale.t()
    columns = along_in.shape[1]
    groups = torch.arange(columns) // max(columns // scales.shape[1], 1)
    if indices is not None and indices.numel() == columns:
        groups = indices.long().flatten()
    if int(groups.max()) >= scales.shape[1] or int(groups.min()) < 0 or scales.shape[0] != along_in.shape[0]:
        raise CheckpointError(f"scales of {weight.name} have shape {list(scale.shape)}, its codes {list(stored.shape)}")
    codes_of_zero = _zeros(weight.layout, zeros, bits)
    if codes_of_zero.dim() and codes_of_zero.shape != scales.shape:
        raise CheckpointError(f"zeros of {weight.name} do not fit scales of shape {list(scale.shape)}")
    zero = codes_of_zero if codes_of_zero.dim() == 0 else codes_of_zero[:, groups]
    quanta = torch.where((along_in == 0) | (along_in == last), 1.0, 0.5)
    return (along_in - zero).float(), quanta, scales[:, groups]


def _zeros(layout: Layout, stored: Tensor | None, bits: int) -> Tensor:
    """Return the code of zero, of all or [out, groups]."""
    if stored is None:
        return torch.tensor(2 ** (bits - 1))
    if layout == "awq":
        return _in_order(_unpacked(stored, bits)).t()
    if layout == "compressed":
        return _unpacked(stored.t(), bits).t()
    # GPTQ's first format has zeros less one; symmetric ones of its second format are half of all codes.
    zeros = _unpacked(stored, bits).t()
    return zeros if torch.equal(zeros, torch.full_like(zeros, 2 ** (bits - 1))) else zeros + 1


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """Return the codes of int32 words along the last axis, those of the low bits first."""
    codes: Tensor = words.long()[..., None] >> torch.arange(0, _WORD, bits) & 2**bits - 1
    return codes.flatten(-2)


def _in_order(codes: Tensor) -> Tensor:
    """Return AWQ's codes in the order of the columns."""
    order = torch.tensor([_AWQ_ORDER.index(place) for place in range(len(_AWQ_ORDER))])
    ordered: Tensor = codes.reshape(-1, len(order))[:, order]
    return ordered.reshape(codes.shape)


def _half_quantum(codes: Tensor, *, has_powers: bool) -> Tensor:
    """Return half the distance to the next float or integer, the whole of the last one, which is clipped to.

    Where scales are powers of two, as in the MX formats, all up to the next power of two is clipped.
    """
    if not codes.dtype.is_floating_point:
        return torch.where(codes.abs() >= 2**7 - 1, 1.0, 0.5)
    info = torch.finfo(codes.dtype)
    sizes = codes.float().abs()
    # frexp's mantissa is at least 1/2, that of IEEE 754 at least 1.
    above = torch.frexp(sizes).exponent
    steps = torch.ldexp(torch.full_like(sizes, info.eps / 2), above).clamp(min=info.eps * info.tiny)
    last = torch.ldexp(torch.ones_like(sizes), above) - sizes if has_powers else steps
    return torch.where(sizes >= info.max, last, steps / 2)


def _matrix(part: SharedParameter, number: int, count: int) -> Tensor:
    """Return the part of one of several matrices. Raises CheckpointError."""
    if len(part.matrices) == count:
        return part.matrices[number].load()
    if count == 1:
        return torch.stack([matrix.load() for matrix in part.matrices])
    whole = part.matrices[0].load()
    if whole.dim() and whole.shape[0] == count:
        return whole[number]
    raise CheckpointError(f"{part.name} has shape {list(part.shape)}, which is not that of scales of {count} matrices")


def _spread(scale: Tensor, shape: Sequence[int], name: str, part_lengths: PartLengths) -> Tensor:
    """Return scales that broadcast to a weight: one, one a row, a block, a part or a matrix. Raises CheckpointError."""
    if scale.numel() == 1:
        return scale.reshape(())
    if shape and scale.dim() == 1 and scale.shape[0] == shape[0]:
        return scale.reshape(-1, *[1] * (len(shape) - 1))
    if len(shape) > 1 and scale.dim() == len(shape) - 1 and scale.shape[:-1] == shape[:-2]:
        lengths = part_lengths(name, shape[-2])
        if len(lengths) == scale.shape[-1]:
            return scale.repeat_interleave(torch.tensor(lengths), -1)[..., None]
    if scale.dim() != len(shape) or any(have > size for have, size in zip(scale.shape, shape, strict=True)):
        raise CheckpointError(f"scales of {name} have shape {list(scale.shape)}, which does not fit {list(shape)}")
    for axis, size in enumerate(shape):
        if scale.shape[axis] not in (1, size):
            block = _block(scale.shape[axis], size)
            scale = scale.repeat_interleave(block, axis).narrow(axis, 0, size)
    return scale


def _block(count: int, size: int) -> int:
    fitting = (block for block in _BLOCKS if math.ceil(size / block) == count)
    return next(fitting, math.ceil(size / max(count, 1)))
