"""Quantised weights as values, and compared by how far golden's may be from them: half a quantum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from msprobe_hooks.extensions.checkpoint.weights_file import Digest
from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint, MatrixDigest, Parameter, SharedParameter
from pytest_msprobe.extensions.checkpoint.quantised_formats import PartLengths, Quantised, decode, recognised
from pytest_msprobe.extensions.checkpoint.weight_differences import Difference, Earlier, in_words, runs_of
from pytest_msprobe.extensions.model_names.model_names import ModelNames

# Scales of activations and of the cache, which the other side has not.
_OF_ACTIVATIONS = (
    "input_scale", "input_global_scale", "k_scale", "v_scale", "q_scale", "prob_scale", "kv_scale", "output_scale",
)  # fmt: skip
# Choices: values are golden's times one factor where that explains so many of those that are off, and is no rounding.
_EXPLAINED = 0.9
_LEAST_FACTOR = 1.05

_Compute = Callable[[Quantised, PartLengths, int, int | None], Tensor]


def dequantised(
    side: Checkpoint, other: Checkpoint, names: ModelNames, part_lengths: PartLengths
) -> tuple[Checkpoint, Checkpoint]:
    """Return a side with values in place of quantised weights, and with how far golden's may be from them.

    Weights that both sides have quantised under the same names stay as they are.
    """
    other_names = {names.canonical(name).name for name in other.names}

    def decoded(parameters: Iterable[SharedParameter]) -> list[tuple[SharedParameter, SharedParameter]]:
        return [*_decoded(list(parameters), lambda name: names.canonical(name).name in other_names, part_lengths)]

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
    parameters: Sequence[SharedParameter], is_kept: Callable[[str], bool], part_lengths: PartLengths
) -> Iterator[tuple[SharedParameter, SharedParameter]]:
    by_name = {shared.name: shared for shared in parameters}
    weights = {weight.codes.name: weight for weight in map(partial(recognised, by_name), parameters) if weight}
    weights = {name: weight for name, weight in weights.items() if not is_kept(weight.scale.name)}
    used = {part.name for weight in weights.values() for part in weight.tensors}
    for shared in parameters:
        if shared.name in weights:
            weight = weights[shared.name]
            yield _as_shared(weight, _values, part_lengths), _as_shared(weight, _allowed, part_lengths)
        elif shared.name not in used:
            if shared.name.endswith(_OF_ACTIVATIONS):
                words = "a scale of activations"
                shared = replace(shared, matrices=tuple(replace(one, optional=words) for one in shared.matrices))
            yield shared, shared


def _as_shared(weight: Quantised, compute: _Compute, part_lengths: PartLengths) -> SharedParameter:
    count = len(weight.codes.matrices)
    shape = weight.shape[1:] if count > 1 else weight.shape
    has_values = all(matrix.has_values for part in weight.tensors for matrix in part.matrices)
    # Nothing is compared by digests of codes, or by those of what is allowed.
    stored = None if has_values and compute is _values else partial(_no_digest, shape)
    matrices = tuple(
        replace(
            weight.codes.matrices[number],
            shape=shape,
            load=partial(compute, weight, part_lengths, number, None),
            load_matrix=partial(compute, weight, part_lengths, number) if count == 1 and len(shape) > 2 else None,
            has_values=has_values,
            stored=stored,
            quantised=weight.words,
        )
        for number in range(count)
    )
    return replace(weight.codes, name=weight.name, matrices=matrices, shape=weight.shape)


def _no_digest(shape: Sequence[int]) -> MatrixDigest:
    return MatrixDigest(Digest(np.zeros(shape[0] if shape else 1, np.uint64), None))


def _values(weight: Quantised, part_lengths: PartLengths, number: int, place: int | None) -> Tensor:
    """Return the values of one matrix in float32. Raises CheckpointError."""
    decoded = decode(weight, number, part_lengths, place)
    return decoded.codes * decoded.scale


def _allowed(weight: Quantised, part_lengths: PartLengths, number: int, place: int | None) -> Tensor:
    """Return how far from each value what was quantised may be: half a quantum, one where the code is the last.

    A quantiser that divides by scales in bfloat16 or float16 rounds to these as well.
    """
    decoded = decode(weight, number, part_lengths, place)
    rounding = decoded.epsilon * (decoded.codes * decoded.scale).abs()
    return decoded.quanta * decoded.scale.abs() + rounding


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
    rows, places = _places(off)
    stale = next((words for words, other in earlier if _is_within(ours, target, other)), "")
    cause = f"{what}: values are more than half a quantum off"
    words = (
        f"{what}: {int(off.sum())} of {off.numel()} values are more than half a quantum off ({places})"
        f"{_factor(ours[off], golden.load().float()[off], target, off)}"
    )
    if stale:
        cause = f"not synchronised: within half a quantum of {stale}"
        return Difference("earlier", f"{cause}; {words}", rows, cause=cause)
    return Difference("partly", words, rows, cause=cause)


def _places(off: Tensor) -> tuple[tuple[tuple[int, int], ...], str]:
    """Return the runs of rows, or of matrices of a stack, that are off, and where values are off in words."""
    flags = off.reshape(len(off), -1).any(1).numpy() if off.dim() else np.ones(1, np.bool_)
    rows = runs_of(flags)
    unit = {1: "elements", 2: "rows"}.get(max(off.dim(), 1), "matrices")
    words = f"{unit} {in_words(rows)} of {len(flags)}"
    for axis, name in ((-2, "rows"), (-1, "columns")):
        if off.dim() + axis > 0:
            along = off.transpose(axis, 0).flatten(1).any(1).nonzero()
            first, last = int(along[0]), int(along[-1])
            if last - first + 1 < off.shape[axis]:
                words += f", {name} {first}-{last}" if last > first else f", {name[:-1]} {first}"
    return rows, words


def _factor(ours: Tensor, theirs: Tensor, target: Parameter, off: Tensor) -> str:
    """Return in words the one factor that values that are off are of golden's, empty where there is none."""
    if target.allowed is None or not bool((theirs.isfinite() & ours.isfinite()).all()):
        return ""
    # The median, since values that were clipped are less.
    factor = float((ours / theirs)[theirs != 0].nanmedian()) if bool((theirs != 0).any()) else 0.0
    if factor <= 0 or max(factor, 1 / factor) <= _LEAST_FACTOR:
        return ""
    is_explained = (ours - factor * theirs).abs() <= target.allowed()[off]
    return f", about {factor:.2g} times golden's" if float(is_explained.float().mean()) >= _EXPLAINED else ""


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
        shares.append(torch.where(apart == 0, 0.0, apart / allowed).nan_to_num(nan=math.inf))
    return torch.stack(shares).amin(0) if not golden.quantised else shares[0]
