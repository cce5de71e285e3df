"""Two checkpoints of one model under the same names, whatever wrote them, and golden checkpoints of other steps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from torch import Tensor

from msprobe_hooks.extensions.checkpoint.weights_file import is_stack
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.checkpoint_files import (
    Checkpoint,
    Parameter,
    Placed,
    Share,
    SharedParameter,
    joined,
    rows_of,
    transposed,
)
from pytest_msprobe.extensions.checkpoint.numbering import Numbering
from pytest_msprobe.extensions.checkpoint.tensor_parallel import RankPart, whole_of
from pytest_msprobe.extensions.checkpoint.weight_differences import Earlier
from pytest_msprobe.extensions.checkpoint.weights_folder import INDEX, main_file, read_checkpoint
from pytest_msprobe.extensions.model_names.fused_parts import Canonical, ModelSizes, UnknownSizesError, part_rows
from pytest_msprobe.extensions.model_names.model_names import ModelNames

_HEAD, _EMBEDDING = "lm_head.weight", "embed_tokens.weight"
_EXPERT = re.compile(r"(?<=\.experts\.)\{expert\}(?=\.)")


def paired(
    target: Checkpoint, golden: Checkpoint, names: ModelNames
) -> dict[str, tuple[Parameter | None, Parameter | None]]:
    """Return each parameter of either side, None where the other lacks it, in the target's order.

    Names that both sides have stay as they are; any other becomes that of transformers, and what is fused becomes its
    parts. Where ranks were written by themselves, all do, and are put together.
    """
    common: set[str] = set()
    if not target.shares and not golden.shares:
        common = set(target.parameters) & set(golden.parameters)
        if len(common) == len(target.parameters) == len(golden.parameters):
            return {name: (target.parameters[name], golden.parameters[name]) for name in target.parameters}
    sizes = golden.sizes.completed(target.sizes)
    shapes: dict[str, tuple[int, ...]] = {}
    for side in (target, golden):
        shapes |= _known_shapes(side, names)
    ours, theirs = (_unified(side, names, sizes, shapes, common) for side in (target, golden))
    for one, other in ((ours, theirs), (theirs, ours)):
        if _HEAD in other and _HEAD not in one and _EMBEDDING in one:
            one[_HEAD] = replace(one[_EMBEDDING], note=f"it has no {_HEAD}: {_EMBEDDING} is compared")
    return {name: (ours.get(name), theirs.get(name)) for name in dict.fromkeys((*ours, *theirs))}


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
    parts: defaultdict[str, list[RankPart]] = defaultdict(list)
    broken: dict[str, Parameter] = {}
    for share, shared in _placed(shares):
        canonical = names.canonical(shared.name)
        try:
            for name, part in _parts(canonical, share, shared, numbering, sizes, shapes):
                kind = "etp" if ".experts." in name else "tp"
                place = share.layout.get(kind) or _default(kind, share)
                rank, size = (0, 1) if shared.whole_shape else place
                parts[name].append(RankPart(share.rank, rank, size, _axis(shared, canonical), part))
        except (UnknownSizesError, CheckpointError) as error:
            for part_name in canonical.parts:
                name = numbering.numbered(part_name.name, canonical, share, shared.chunk)
                broken[name] = replace(shared.matrices[0], fault=str(error))
    for name, own_parts in parts.items():
        try:
            unified[name] = whole_of(name, own_parts, shapes.get(name), sizes)
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
    if len(first.whole_shape) > 2 or any(len(other.matrices) != 1 for _, other in group):
        fault = f"{first.name} has {len(first.whole_shape)} axes, of which shards are not put together"
        return replace(first, matrices=tuple(replace(matrix, fault=fault) for matrix in first.matrices))
    placed: dict[tuple[int, ...], Placed] = {}
    for share, shard in group:
        if 0 in shard.shape:
            continue
        offset = (*(shard.offset or ()), 0, 0)[:2]
        placed.setdefault(offset, Placed(shard.matrices[0], f"rank {share.rank}", *offset))
    try:
        whole = joined(first.name, list(placed.values()), first.whole_shape)
    except CheckpointError as error:
        whole = replace(first.matrices[0], fault=str(error))
    return replace(first, matrices=(whole,), shape=first.whole_shape)


def _shared(name: str, parameter: Parameter, names: ModelNames) -> SharedParameter:
    """Return a parameter of an ordinary checkpoint as what its only rank holds."""
    if not is_stack(parameter.shape):
        return SharedParameter(name, (parameter,), parameter.shape)
    if not names.canonical(name).is_fused:
        return SharedParameter(name, (parameter,), parameter.shape)
    matrices = tuple(
        replace(parameter, shape=parameter.shape[1:], load=_matrix(parameter.load, number))
        for number in range(parameter.shape[0])
    )
    return SharedParameter(name, matrices, parameter.shape)


def _matrix(load: Callable[[], Tensor], number: int) -> Callable[[], Tensor]:
    return lambda: load()[number]


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
    counts = {part.name: rows for part in canonical.parts if (rows := _rows(part.name, shapes)) is not None}
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
