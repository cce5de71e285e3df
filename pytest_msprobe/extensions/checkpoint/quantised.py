"""Quantised weights with their scales, as values and how far golden's may be from them: half a quantum.

What is read: float8 and int8 weights with ``*_scale`` or ``*_scale_inv`` (one, one a row, or one a block), and 4 or 8
bits packed in int32 as AWQ (``qweight`` [in, out / 8]), GPTQ (``qweight`` [in / 8, out]) and compressed-tensors
(``weight_packed`` [out, in / 8]) store them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.extensions.checkpoint.weights_file import Digest
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint, MatrixDigest, Parameter, SharedParameter
from pytest_msprobe.extensions.checkpoint.weight_differences import Difference, Earlier, in_words, runs_of
from pytest_msprobe.extensions.model_names.model_names import ModelNames

_WHOLE = {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "int8"}
_SCALES = ("_scale_inv", "_scale")
# Scales of activations and of the cache, which the other side has not.
_OF_ACTIVATIONS = ("input_scale", "k_scale", "v_scale", "q_scale", "prob_scale", "kv_scale", "output_scale")
# AWQ: the nibble at place i of an int32 is that of this column (AutoAWQ, WQLinear_GEMM.from_linear).
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
_WORD, _BYTE = 32, 8
# The usual sizes of blocks, the likeliest first.
_BLOCKS = (128, 64, 32, 16, 256, 512)

_Layout = Literal["whole", "awq", "gptq", "compressed"]


@dataclass(frozen=True, slots=True)
class _Quantised:
    """A quantised weight: the name that its values get, and its tensors; the last three where it has them."""

    name: str
    layout: _Layout
    codes: SharedParameter
    scale: SharedParameter
    zeros: SharedParameter | None = None
    groups: SharedParameter | None = None
    size: SharedParameter | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of its values: [out, in] of packed ones."""
        if self.layout == "awq":
            return self.scale.shape[1], self.codes.shape[0]
        if self.layout == "gptq":
            return self.scale.shape[1], self.codes.shape[0] * _WORD // self.bits
        if self.layout == "compressed":
            return self.codes.shape[0], self.codes.shape[1] * _WORD // self.bits
        return self.codes.shape

    @property
    def bits(self) -> int:
        """The number of bits of a packed code, by its size or by how many of the zeros are in an int32, else 4."""
        if self.size is not None and self.size.shape == (2,) and self.size.matrices[0].has_values:
            columns = self.size.matrices[0].load().flatten()[-1]
            if self.codes.shape[1] * _WORD // max(int(columns), 1) == _BYTE:
                return _BYTE
        if self.zeros is None or self.layout == "awq":
            return 4
        codes, words = self.scale.shape[1 if self.layout == "gptq" else 0], self.zeros.shape
        return max(_WORD * words[1 if self.layout == "gptq" else 0] // max(codes, 1), 1)

    @property
    def words(self) -> str:
        """Its kind in words, for a reason."""
        if self.layout != "whole":
            names = {"awq": "AWQ", "gptq": "GPTQ", "compressed": "compressed-tensors"}
            return f"int{self.bits} of {names[self.layout]}"
        dtype, scale, shape = self.codes.matrices[0].dtype, self.scale.shape, self.shape
        if len(self.codes.matrices) > 1 and scale:
            scale, shape = scale[1:], shape[1:]
        if math.prod(scale) == 1:
            return f"{dtype} with one scale"
        if len(scale) < 2 or scale[-1] == 1:
            return f"{dtype} with a scale a row"
        blocks = [_block(have, size) for have, size in zip(scale[-2:], shape[-2:], strict=False)]
        return f"{dtype} with a scale for each {' x '.join(map(str, blocks))}"


def dequantised(side: Checkpoint, other: Checkpoint, names: ModelNames) -> tuple[Checkpoint, Checkpoint]:
    """Return a side with values in place of quantised weights, and with how far golden's may be from them.

    Weights that both sides have quantised under the same names stay as they are.
    """
    other_names = {names.canonical(name).name for name in other.names}

    def decoded(parameters: Iterable[SharedParameter]) -> list[tuple[SharedParameter, SharedParameter]]:
        return [*_decoded(list(parameters), lambda name: names.canonical(name).name in other_names)]

    if side.shares:
        shares = [(share, decoded(share.parameters)) for share in side.shares]
        values, allowed = (
            tuple(replace(share, parameters=tuple(pair[place] for pair in pairs)) for share, pairs in shares)
            for place in (0, 1)
        )
        return replace(side, shares=values), replace(side, shares=allowed)
    pairs = decoded(SharedParameter(name, (own,), own.shape) for name, own in side.parameters.items())
    return (
        replace(side, parameters={value.name: value.matrices[0] for value, _ in pairs}),
        replace(side, parameters={limit.name: limit.matrices[0] for _, limit in pairs}),
    )


def _decoded(
    parameters: Sequence[SharedParameter], is_kept: Callable[[str], bool]
) -> Iterator[tuple[SharedParameter, SharedParameter]]:
    by_name = {shared.name: shared for shared in parameters}
    weights = {weight.codes.name: weight for weight in map(partial(_quantised, by_name), parameters) if weight}
    weights = {name: weight for name, weight in weights.items() if not is_kept(weight.scale.name)}
    used: set[str] = set()
    for weight in weights.values():
        used.update(part.name for part in (weight.scale, weight.zeros, weight.groups, weight.size) if part is not None)
    for shared in parameters:
        if shared.name in weights:
            weight = weights[shared.name]
            yield _as_shared(weight, _values), _as_shared(weight, _allowed)
        elif shared.name not in used:
            if shared.name.endswith(_OF_ACTIVATIONS):
                words = "a scale of activations"
                shared = replace(shared, matrices=tuple(replace(one, optional=words) for one in shared.matrices))
            yield shared, shared


def _quantised(by_name: Mapping[str, SharedParameter], shared: SharedParameter) -> _Quantised | None:
    name = shared.name
    if shared.matrices and shared.matrices[0].dtype in _WHOLE:
        scale = next((by_name[name + suffix] for suffix in _SCALES if name + suffix in by_name), None)
        return None if scale is None else _Quantised(name, "whole", shared, scale)
    prefix, _, last = name.rpartition("qweight")
    if name.endswith("qweight") and not last and len(shared.shape) == 2:
        scale = by_name.get(f"{prefix}scales")
        if scale is None or len(scale.shape) != 2:
            return None
        layout: _Layout = "gptq" if shared.shape[1] == scale.shape[1] else "awq"
        rest = by_name.get(f"{prefix}qzeros"), by_name.get(f"{prefix}g_idx")
        return _Quantised(f"{prefix}weight", layout, shared, scale, *rest)
    if name.endswith("weight_packed") and len(shared.shape) == 2:
        weight = name.removesuffix("_packed")
        scale = by_name.get(f"{weight}_scale")
        if scale is None or len(scale.shape) != 2:
            return None
        others = (by_name.get(f"{weight}_{suffix}") for suffix in ("zero_point", "g_idx", "shape"))
        return _Quantised(weight, "compressed", shared, scale, *others)
    return None


def _as_shared(weight: _Quantised, compute: Callable[[_Quantised, int], Tensor]) -> SharedParameter:
    count = len(weight.codes.matrices)
    shape = weight.shape[1:] if count > 1 else weight.shape
    parts = [part for part in (weight.codes, weight.scale, weight.zeros, weight.groups) if part is not None]
    has_values = all(matrix.has_values for part in parts for matrix in part.matrices)
    # Nothing is compared by digests of codes, or by those of what is allowed.
    stored = None if has_values and compute is _values else partial(_no_digest, shape)
    matrices = tuple(
        replace(
            weight.codes.matrices[number],
            shape=shape,
            load=partial(compute, weight, number),
            has_values=has_values,
            stored=stored,
            quantised=weight.words,
        )
        for number in range(count)
    )
    return replace(weight.codes, name=weight.name, matrices=matrices, shape=weight.shape)


def _no_digest(shape: Sequence[int]) -> MatrixDigest:
    return MatrixDigest(Digest(np.zeros(shape[0] if shape else 1, np.uint64), None))


def _values(weight: _Quantised, number: int) -> Tensor:
    """Return the values of one matrix in float32. Raises CheckpointError."""
    codes, _, scale = _parts(weight, number)
    return codes * scale


def _allowed(weight: _Quantised, number: int) -> Tensor:
    """Return how far from each value what was quantised may be: half a quantum, one where the code is the last.

    A quantiser that divides by scales in bfloat16 or float16 rounds to these as well.
    """
    codes, quantum, scale = _parts(weight, number)
    narrow = _matrix(weight.scale, number, len(weight.codes.matrices)).dtype
    eps = torch.finfo(narrow if narrow in (torch.bfloat16, torch.float16) else torch.float32).eps
    return quantum * scale.abs() + eps * (codes * scale).abs()


def _parts(weight: _Quantised, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes less their zeros, how far each is from where it changes, and scales that broadcast to them."""
    count = len(weight.codes.matrices)
    stored = weight.codes.matrices[number].load()
    scale = _matrix(weight.scale, number, count).float()
    if weight.layout == "whole":
        return stored.float(), _half_quantum(stored), _spread(scale, stored.shape, weight.name)
    bits, last = weight.bits, 2**weight.bits - 1
    if bits not in (4, _BYTE) or not stored.numel() or stored.dtype.is_floating_point:
        raise CheckpointError(f"{weight.codes.name} with its zeros does not hold codes of 4 or 8 bits")
    along_in = _unpacked(stored if weight.layout != "gptq" else stored.t(), bits)
    if weight.layout == "awq":
        along_in = _in_order(along_in).t()
    # From here on [out, in], with scales and zeros [out, groups].
    scales = scale if weight.layout == "compressed" else scale.t()
    zeros = _zeros(weight, bits)
    columns = along_in.shape[1]
    groups = torch.arange(columns) // max(columns // scales.shape[1], 1)
    if weight.groups is not None and (indices := weight.groups.matrices[0].load()).numel() == columns:
        groups = indices.long()
    if int(groups.max()) >= scales.shape[1] or int(groups.min()) < 0 or scales.shape[0] != along_in.shape[0]:
        raise CheckpointError(f"scales of {weight.name} have shape {list(scale.shape)}, its codes {list(stored.shape)}")
    if zeros.dim() and zeros.shape != scales.shape:
        raise CheckpointError(f"zeros of {weight.name} do not fit scales of shape {list(scale.shape)}")
    zero = zeros if zeros.dim() == 0 else zeros[:, groups]
    quantum = torch.where((along_in == 0) | (along_in == last), 1.0, 0.5)
    return (along_in - zero).float(), quantum, scales[:, groups]


def _zeros(weight: _Quantised, bits: int) -> Tensor:
    """Return the code of zero, of all or [out, groups]."""
    if weight.zeros is None:
        return torch.tensor(2 ** (bits - 1))
    stored = weight.zeros.matrices[0].load()
    if weight.layout == "awq":
        return _in_order(_unpacked(stored, bits)).t()
    if weight.layout == "compressed":
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


def _half_quantum(codes: Tensor) -> Tensor:
    """Return half the distance to the next float or integer, the whole of the last one, which is clipped to."""
    if not codes.dtype.is_floating_point:
        return torch.where(codes.abs() >= 2**7 - 1, 1.0, 0.5)
    info = torch.finfo(codes.dtype)
    sizes = codes.float().abs()
    # frexp's mantissa is at least 1/2, that of IEEE 754 at least 1.
    steps = torch.ldexp(torch.full_like(sizes, info.eps / 2), torch.frexp(sizes).exponent).clamp(
        min=info.eps * info.tiny
    )
    return torch.where(sizes >= info.max, steps, steps / 2)


def _matrix(scale: SharedParameter, number: int, count: int) -> Tensor:
    """Return the scales of one of several matrices. Raises CheckpointError."""
    if len(scale.matrices) == count:
        return scale.matrices[number].load()
    if count == 1:
        return torch.stack([matrix.load() for matrix in scale.matrices])
    whole = scale.matrices[0].load()
    if whole.dim() and whole.shape[0] == count:
        return whole[number]
    raise CheckpointError(
        f"{scale.name} has shape {list(scale.shape)}, which is not that of scales of {count} matrices"
    )


def _spread(scale: Tensor, shape: Sequence[int], name: str) -> Tensor:
    """Return scales that broadcast to a weight: one, one a row, or one a block. Raises CheckpointError."""
    if scale.numel() == 1:
        return scale.reshape(())
    if shape and scale.dim() == 1 and scale.shape[0] == shape[0]:
        return scale.reshape(-1, *[1] * (len(shape) - 1))
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


def with_allowed(values: Mapping[str, Parameter], allowed: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return parameters, those that are dequantised with what reads how far golden's may be from them."""
    return {
        name: replace(own, allowed=allowed[name].load) if own.quantised and name in allowed else own
        for name, own in values.items()
    }


def quantised_difference(target: Parameter, golden: Parameter, earlier: Iterable[Earlier]) -> Difference:
    """Compare parameters of one shape of which one is quantised, or both. Raises CheckpointError.

    ``kind`` is ``equal``, ``quantised`` (within half a quantum), ``earlier`` (within half a quantum of an earlier
    step's) or ``partly``.
    """
    what = " and golden's ".join(dict.fromkeys(side.quantised for side in (target, golden) if side.quantised))
    what = f"{'golden is ' if not target.quantised else ''}{what}"
    ours = target.load().float()
    excess = _excess(ours, target, golden)
    off = excess > 1
    if not bool(off.any()):
        kind = "equal" if bool((excess == 0).all()) else "quantised"
        return Difference(kind, f"{'equal' if kind == 'equal' else 'within half a quantum'}: {what}")
    flags = off.reshape(len(off), -1).any(1).numpy() if off.dim() else np.ones(1, np.bool_)
    rows = runs_of(flags)
    stale = next((words for words, other in earlier if _is_within(ours, target, other)), "")
    count, unit = int(off.sum()), "rows" if off.dim() > 1 else "elements"
    cause = f"{what}: values are more than half a quantum off"
    words = (
        f"{what}: {count} of {off.numel()} values are more than half a quantum off ({unit} {in_words(rows)} of "
        f"{len(flags)})"
    )
    if stale:
        cause = f"not synchronised: within half a quantum of {stale}"
        return Difference("earlier", f"{cause}; {words}", rows, cause=cause)
    return Difference("partly", words, rows, cause=cause)


def _is_within(ours: Tensor, target: Parameter, golden: Parameter) -> bool:
    return golden.shape == target.shape and golden.has_values and not bool((_excess(ours, target, golden) > 1).any())


def _excess(ours: Tensor, target: Parameter, golden: Parameter) -> Tensor:
    """Return how far values are apart as a share of what is allowed; NaN in one alone is infinitely far.

    What was quantised may have been golden's in bfloat16.
    """
    stored = golden.load()
    allowed = sum((side.allowed() for side in (target, golden) if side.allowed is not None), torch.zeros(()))
    shares = []
    for theirs in {stored.dtype: stored, torch.bfloat16: stored.to(torch.bfloat16)}.values():
        apart = (ours.double() - theirs.double()).abs().nan_to_num(nan=math.inf)
        apart = torch.where(ours.isnan() & theirs.isnan(), 0.0, apart)
        shares.append(torch.where(apart == 0, 0.0, apart / allowed))
    return torch.stack(shares).amin(0) if not golden.quantised else shares[0]
