"""Two checkpoints of one model under the same names, whatever wrote them, and golden checkpoints of other steps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from torch import Tensor

from msprobe_hooks.extensions.checkpoint.weights_file import is_stack
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import (
    Checkpoint,
    Parameter,
    Placed,
    Replica,
    Share,
    SharedParameter,
    joined,
    rows_of,
    transposed,
)
from pytest_msprobe.extensions.checkpoint.megatron import Numbering, in_transformers_place
from pytest_msprobe.extensions.checkpoint.quantised import dequantised, with_allowed
from pytest_msprobe.extensions.checkpoint.weight_differences import Earlier
from pytest_msprobe.extensions.checkpoint.weights_folder import INDEX, main_file, read_checkpoint
from pytest_msprobe.extensions.model_names.fused_parts import Canonical, ModelSizes, UnknownSizesError, part_rows
from pytest_msprobe.extensions.model_names.model_names import ModelNames

_HEAD, _EMBEDDING = "lm_head.weight", "embed_tokens.weight"
# What marks a layer of multi-token prediction, and its copies of what the model has.
_PREDICTION = "eh_proj.weight"
_SHARED_BY_PREDICTION = {"embed_tokens.weight": _EMBEDDING, "shared_head.head.weight": _HEAD}
_EXPERT = re.compile(r"(?<=\.experts\.)\{expert\}(?=\.)")

_VOCABULARY = ("embed_tokens.weight", "lm_head.weight")
_KEY_VALUE = (".k_proj.", ".v_proj.")

# So many ranks are named.
_MOST_RANKS = 8


def paired(
    target: Checkpoint, golden: Checkpoint, names: ModelNames
) -> dict[str, tuple[Parameter | None, Parameter | None]]:
    """Return each parameter of either side, None where the other lacks it, in the target's order.

    Names that both sides have stay as they are; any other becomes that of transformers, and what is fused becomes its
    parts. Where ranks were written by themselves, all do, and are put together.
    """
    if not target.shares and not golden.shares:
        common = set(target.parameters) & set(golden.parameters)
        if len(common) == len(target.parameters) == len(golden.parameters):
            return {name: (target.parameters[name], golden.parameters[name]) for name in target.parameters}
    target, golden = in_transformers_place(target), in_transformers_place(golden)
    sizes = golden.sizes.completed(target.sizes)
    part_lengths = partial(_part_lengths, names, sizes, _known_shapes(target, names) | _known_shapes(golden, names))
    (target, ours_allowed), (golden, theirs_allowed) = (
        dequantised(target, golden, names, part_lengths),
        dequantised(golden, target, names, part_lengths),
    )
    common = set(target.parameters) & set(golden.parameters)
    shapes = _known_shapes(target, names) | _known_shapes(golden, names)
    ours, theirs = (
        with_allowed(_unified(side, names, sizes, shapes, common), _unified(allowed, names, sizes, shapes, common))
        for side, allowed in ((target, ours_allowed), (golden, theirs_allowed))
    )
    for one, other in ((ours, theirs), (theirs, ours)):
        if _HEAD in other and _HEAD not in one and _EMBEDDING in one:
            one[_HEAD] = replace(one[_EMBEDDING], note=f"it has no {_HEAD}: {_EMBEDDING} is compared")
        _complete_prediction(one, other)
    return {name: (ours.get(name), theirs.get(name)) for name in dict.fromkeys((*ours, *theirs))}


def _complete_prediction(side: dict[str, Parameter], other: dict[str, Parameter]) -> None:
    """Add to a side what layers of multi-token prediction share with the model, and let it lack such layers."""
    layers = {name.removesuffix(_PREDICTION) for name in other if name.endswith(_PREDICTION)}
    for layer in layers:
        names = [name for name in other if name.startswith(layer)]
        if not any(name.startswith(layer) for name in side):
            other.update({name: replace(other[name], optional="a weight of multi-token prediction") for name in names})
            continue
        for own, shared in _SHARED_BY_PREDICTION.items():
            name = f"{layer}{own}"
            if name in other and name not in side and shared in side:
                side[name] = replace(side[shared], note=f"it has no {name}: {shared} is compared")


def _known_shapes(side: Checkpoint, names: ModelNames) -> dict[str, tuple[int, ...]]:
    """Return the whole shapes of parameters that are not fused, by canonical name."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, parameter in side.parameters.items():
        canonical = names.canonical(name)
        if not canonical.is_fused:
            shapes[canonical.name] = parameter.shape
    for share in side.shares:
        is_whole = all(size == 1 for kind, (_, size) in share.layout.items() if kind in ("tp", "etp"))
        for shared in share.parameters:
            canonical = names.canonical(shared.name)
            if (is_whole or shared.whole_shape) and not canonical.is_fused and len(shared.matrices) == 1:
                shapes[canonical.name] = shared.whole_shape or shared.shape
    return shapes


def _unified(
    side: Checkpoint,
    names: ModelNames,
    sizes: ModelSizes,
    shapes: Mapping[str, tuple[int, ...]],
    common: set[str],
) -> dict[str, Parameter]:
    unified = {name: parameter for name, parameter in side.parameters.items() if name in common}
    rest = tuple(_shared(name, own, names) for name, own in side.parameters.items() if name not in common)
    shares = side.shares or (Share(0, {}, rest),)
    numbering = Numbering(shares, names)
    parts: defaultdict[str, list[_RankPart]] = defaultdict(list)
    broken: dict[str, Parameter] = {}
    for share, shared in _placed(shares):
        canonical = names.canonical(shared.name)
        try:
            for name, part in _parts(canonical, share, shared, numbering, sizes, shapes):
                kind = "etp" if ".experts." in name else "tp"
                place = share.layout.get(kind) or _default(kind, share)
                rank, size = (0, 1) if shared.whole_shape else place
                parts[name].append(_RankPart(share.rank, rank, size, _axis(shared, canonical), part))
        except (UnknownSizesError, CheckpointError) as error:
            for part_name in canonical.parts:
                name = numbering.numbered(part_name.name, canonical, share, shared.chunk)
                broken[name] = replace(shared.matrices[0], fault=str(error))
    for name, own_parts in parts.items():
        try:
            unified[name] = _whole_of(name, own_parts, shapes.get(name), sizes)
        except CheckpointError as error:
            unified[name] = replace(own_parts[0].part, fault=str(error))
    return unified | broken


def _default(kind: str, share: Share) -> tuple[int, int]:
    """Return how an expert is shared where the layout does not say: as any weight, unless experts are spread."""
    spread = share.layout.get("ep", (0, 1))[1] > 1
    return (0, 1) if kind == "tp" or spread else share.layout.get("tp", (0, 1))


def _axis(shared: SharedParameter, canonical: Canonical) -> int | None:
    axes = {"rows": 0, "columns": 1, "none": None}
    return axes.get(shared.sharded, canonical.sharded)


def _placed(shares: Iterable[Share]) -> Iterator[tuple[Share, SharedParameter]]:
    """Yield what ranks hold, shards that know their places put together first."""
    groups: dict[tuple[object, ...], list[tuple[Share, SharedParameter]]] = {}
    for share in shares:
        kinds = tuple(sorted((kind, place) for kind, place in share.layout.items() if kind != "dp"))
        for shared in share.parameters:
            if shared.whole_shape is None or shared.whole_shape == shared.shape:
                yield share, shared
            else:
                groups.setdefault((kinds, shared.chunk, shared.name), []).append((share, shared))
    for group in groups.values():
        yield group[0][0], _assembled(group)


def _assembled(group: list[tuple[Share, SharedParameter]]) -> SharedParameter:
    first = group[0][1]
    assert first.whole_shape is not None
    if is_stack(first.whole_shape) and all(shard.shape[1:] == first.whole_shape[1:] for _, shard in group):
        return _stacked(first, group)
    if len(first.whole_shape) > 2 or any(len(other.matrices) != 1 for _, other in group):
        fault = f"{first.name} has {len(first.whole_shape)} axes, of which shards are not put together"
        return replace(first, matrices=tuple(replace(matrix, fault=fault) for matrix in first.matrices))
    shape = first.whole_shape
    places: dict[tuple[int, ...], list[tuple[int, Parameter]]] = {}
    for share, shard in group:
        if 0 not in shard.shape:
            offset = (*(shard.offset or ()), 0, 0)[:2]
            places.setdefault(offset, []).append((share.rank, shard.matrices[0]))

    def join(shards: Sequence[Parameter]) -> Parameter:
        placed = [
            Placed(shard, f"rank {holders[0][0]}", *offset)
            for shard, (offset, holders) in zip(shards, places.items(), strict=True)
        ]
        return joined(first.name, placed, shape)

    try:
        whole = _of_replicas(list(places.values()), join)
    except CheckpointError as error:
        whole = replace(first.matrices[0], fault=str(error))
    return replace(first, matrices=(whole,), shape=shape)


def _stacked(first: SharedParameter, group: list[tuple[Share, SharedParameter]]) -> SharedParameter:
    """Return a stack of matrices, such as experts, of which each rank holds some."""
    holders: defaultdict[int, list[tuple[int, Parameter]]] = defaultdict(list)
    for share, shard in group:
        start = (shard.offset or (0,))[0]
        for number, matrix in enumerate(shard.matrices, start):
            holders[number].append((share.rank, matrix))
    count = (first.whole_shape or (0,))[0]
    matrices = [
        _of_replicas([holders[number]], lambda shards: shards[0]) for number in range(count) if holders.get(number)
    ]
    if len(matrices) != count:
        fault = f"shards of {first.name} hold {len(matrices)} of {count} matrices; write the weights of all ranks"
        matrices = [replace(first.matrices[0], fault=fault)] * count
    return replace(first, matrices=tuple(matrices), shape=first.whole_shape or first.shape)


def _shared(name: str, parameter: Parameter, names: ModelNames) -> SharedParameter:
    """Return a parameter of an ordinary checkpoint as what its only rank holds."""
    if not is_stack(parameter.shape) or not names.canonical(name).is_fused:
        return SharedParameter(name, (parameter,), parameter.shape)
    matrices = tuple(
        replace(parameter, shape=parameter.shape[1:], load=_matrix(parameter, number), load_matrix=None)
        for number in range(parameter.shape[0])
    )
    return SharedParameter(name, matrices, parameter.shape)


def _matrix(stack: Parameter, number: int) -> Callable[[], Tensor]:
    return partial(stack.load_matrix, number) if stack.load_matrix else lambda: stack.load()[number]


def _parts(
    canonical: Canonical,
    share: Share,
    shared: SharedParameter,
    numbering: Numbering,
    sizes: ModelSizes,
    shapes: Mapping[str, tuple[int, ...]],
) -> Iterator[tuple[str, Parameter]]:
    """Yield the parts of what a rank holds, with the layers and experts that they have in the whole model."""
    if not canonical.is_fused:
        for number, matrix in enumerate(shared.matrices):
            name = numbering.numbered(canonical.name, canonical, share, shared.chunk)
            yield name if len(shared.matrices) == 1 else f"{name}[{number}]", matrix
        return
    counts = _counts(canonical, shapes)
    if canonical.arrangement == "experts" and len(shared.shape) != 3:
        raise UnknownSizesError(
            f"{shared.name} holds all experts in one matrix; pass write_weights the module, which knows how many"
        )
    first = numbering.first_expert(share, len(shared.matrices)) if canonical.arrangement == "experts" else 0
    for number, matrix in enumerate(shared.matrices):
        if canonical.arrangement == "experts":
            matrix = _upright(
                matrix, canonical, numbering.numbered(canonical.parts[0].name, canonical, share, 0), shapes
            )
        if not matrix.shape:
            raise UnknownSizesError(f"{canonical.name} has no rows")
        for part in part_rows(canonical, matrix.shape[0], sizes, counts):
            name = numbering.numbered(part.name, canonical, share, shared.chunk)
            name = _EXPERT.sub(str(first + number), name)
            yield name, rows_of(matrix, part.rows)


def _part_lengths(
    names: ModelNames, sizes: ModelSizes, shapes: Mapping[str, tuple[int, ...]], name: str, rows: int
) -> Sequence[int]:
    """Return how many rows each part of a fused weight has. Raises CheckpointError where sizes do not say."""
    canonical = names.canonical(name)
    try:
        return [part.count for part in part_rows(canonical, rows, sizes, _counts(canonical, shapes))]
    except UnknownSizesError as error:
        raise CheckpointError(f"scales of the parts of {name}: {error}") from None


def _counts(canonical: Canonical, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """Return how many rows each part has in a model of these shapes, as far as they are known."""
    return {part.name: rows for part in canonical.parts if (rows := _rows(part.name, shapes)) is not None}


def _rows(name: str, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    shape = shapes.get(name) or shapes.get(re.sub(r"(?<=layers\.)\d+", "0", name))
    return shape[0] if shape else None


def _upright(matrix: Parameter, canonical: Canonical, part: str, shapes: Mapping[str, tuple[int, ...]]) -> Parameter:
    """Return an expert's matrix, transposed where only so its other axis is that of the other side's."""
    shape = shapes.get(_EXPERT.sub("0", part))
    if shape is None or len(shape) != 2 or len(matrix.shape) != 2:
        return matrix
    free = 1 if canonical.sharded == 0 else 0
    if matrix.shape[free] != shape[free] and matrix.shape[1 - free] == shape[free]:
        return transposed(matrix, "each expert's matrix is transposed")
    return matrix


class EarlierSteps:
    """The parameters of other steps by the names that those of the target have."""

    def __init__(self, target: Checkpoint, paths: Sequence[Path], names: ModelNames) -> None:
        self._target = target
        self._paths = paths
        self._names = names
        self._read = cache(self._parameters)

    def of(self, name: str) -> Iterator[Earlier]:
        """Yield a parameter of each of the steps, with where it is. Raises CheckpointError."""
        for path in self._paths:
            parameter = self._read(path).get(name)
            if parameter is not None:
                yield _in_words(path), parameter

    def _parameters(self, path: Path) -> Mapping[str, Parameter]:
        pairs = paired(self._target, read_checkpoint(main_file(path) if path.is_dir() else path), self._names)
        return {name: golden for name, (_, golden) in pairs.items() if golden is not None}


def _in_words(path: Path) -> str:
    named = path.parents[1] if path.name == INDEX else path
    return "/".join(named.parts[-2:]) if named.name.startswith("step") else named.name


@dataclass(frozen=True, slots=True)
class _RankPart:
    """Part that rank ``number`` of ``size`` tensor parallel ranks holds of a parameter shared along ``axis``."""

    rank: int
    number: int
    size: int
    axis: int | None
    part: Parameter


def _whole_of(name: str, parts: Sequence[_RankPart], shape: tuple[int, ...] | None, sizes: ModelSizes) -> Parameter:
    """Return the whole of what ranks hold; ``shape`` is that on the other side, where it is known.

    Raises CheckpointError where shares are missing or do not fit.
    """
    first = parts[0]
    axis = _shard_axis(first, shape)
    places: dict[int, list[_RankPart]] = {}
    for part in parts:
        number = 0 if axis is None or part.size == 1 else part.number // _same(name, part.size, sizes)
        places.setdefault(number, []).append(part)
    count = 1 if axis is None or first.size == 1 else first.size // _same(name, first.size, sizes)
    missing = next((number for number in range(count) if number not in places), None)
    if missing is not None:
        raise CheckpointError(
            f"no rank holds share {missing} of {count} of {name}", remedy="write the weights of all ranks"
        )
    holders = [places[number] for number in range(count)]

    def join(shards: Sequence[Parameter]) -> Parameter:
        whole = shards[0] if count == 1 else _joined(name, [parts[0].number for parts in holders], shards, axis or 0)
        return _without_padding(name, whole, shape)

    return _of_replicas([[(part.rank, part.part) for part in parts] for parts in holders], join)


def _joined(name: str, numbers: Sequence[int], shards: Sequence[Parameter], axis: int) -> Parameter:
    start, placed = 0, []
    for number, shard in zip(numbers, shards, strict=True):
        words = f"tensor parallel rank {number}"
        placed.append(Placed(shard, words, *((start, 0) if axis == 0 else (0, start))))
        start += shard.shape[axis]
    shape = list(shards[0].shape)
    shape[axis] = start
    return joined(name, placed, tuple(shape))


def _shard_axis(first: _RankPart, shape: tuple[int, ...] | None) -> int | None:
    """Return along which axis ranks share: that of the name, unless shapes of the other side show another."""
    own_shape = first.part.shape
    if shape is not None and len(shape) == len(own_shape) and first.size > 1:
        if shape == own_shape:
            return None
        if first.axis is None:
            return next((axis for axis in range(len(own_shape)) if own_shape[axis] * first.size == shape[axis]), None)
    return first.axis if first.axis is None or first.axis < len(own_shape) else None


def _same(name: str, size: int, sizes: ModelSizes) -> int:
    """Return how many ranks hold the same key and value heads, where there are more ranks than heads."""
    heads = sizes.kv_heads
    return size // heads if heads and size > heads and any(part in name for part in _KEY_VALUE) else 1


def _of_replicas(
    holders: Sequence[Sequence[tuple[int, Parameter]]], join: Callable[[Sequence[Parameter]], Parameter]
) -> Parameter:
    """Return the whole of the shards at each place, each of which some ranks hold; the first is taken.

    Where ranks of a place hold different values, the whole has this fault, and the whole of the other rank's.
    """
    firsts = [ranks[0][1] for ranks in holders]
    whole = join(firsts)
    for place, [(rank, first), *others] in enumerate(holders):
        odd = [
            (number, shard)
            for number, shard in others
            if not np.array_equal(shard.digest().own.rows, first.digest().own.rows)
        ]
        if odd and not whole.fault:
            words = f"rank {odd[0][0]} holds" if len(odd) == 1 else f"ranks {_first_ranks(odd)} hold"
            other = join([*firsts[:place], odd[0][1], *firsts[place + 1 :]])
            replica = Replica(f"rank {odd[0][0]}", f"rank {rank}", other)
            return replace(whole, fault=f"{words} other values than rank {rank}", replica=replica)
    return whole


def _first_ranks(odd: Sequence[tuple[int, Parameter]]) -> str:
    return ", ".join(str(number) for number, _ in odd[:_MOST_RANKS])


def _without_padding(name: str, whole: Parameter, shape: tuple[int, ...] | None) -> Parameter:
    """Return a vocabulary without the rows that fill it up to a multiple of the ranks."""
    if shape is None or not name.endswith(_VOCABULARY) or len(whole.shape) != 2 or whole.shape[0] <= shape[0]:
        return whole
    padding = whole.shape[0] - shape[0]
    if whole.shape[1:] != shape[1:] or padding * 2 > whole.shape[0]:
        return whole
    cut = rows_of(whole, [slice(0, shape[0])])
    return replace(cut, note=f"{padding} rows of padding are not compared")
