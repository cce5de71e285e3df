"""The numbers that layers and experts of a rank have in the whole model."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from pytest_msprobe.extensions.checkpoint.checkpoint_files import Share
from pytest_msprobe.extensions.model_names.fused_parts import Canonical
from pytest_msprobe.extensions.model_names.model_names import ModelNames

# A rank, or a virtual stage and its rank.
_Key = TypeVar("_Key", int, tuple[int, int])

_LAYER = re.compile(r"(?<=layers\.)\d+(?=\.)")
_EXPERT = re.compile(r"(?<=\.experts\.)\d+(?=\.)")


class Numbering:
    """Continuation of the numbers of layers from stage to stage and of those of experts from rank to rank.

    Megatron begins both anew at 0 on each rank; vLLM, SGLang and FSDP number through. Which of the two it is shows
    where the numbers of two stages, or of two expert parallel ranks, overlap.
    """

    def __init__(self, shares: Iterable[Share], names: ModelNames) -> None:
        layers: defaultdict[tuple[int, int], set[int]] = defaultdict(set)
        experts: defaultdict[int, set[int]] = defaultdict(set)
        for share in shares:
            stage, rank = share.layout.get("pp", (0, 1))[0], share.layout.get("ep", (0, 1))[0]
            for shared in share.parameters:
                canonical = names.canonical(shared.name)
                layers[shared.chunk, stage].update(() if canonical.layer is None else (canonical.layer,))
                experts[rank].update(() if canonical.expert is None else (canonical.expert,))
        self._layers = _offsets(layers)
        self._experts = _offsets(experts)

    def numbered(self, name: str, canonical: Canonical, share: Share, chunk: int) -> str:
        """Return a canonical name, or one of a part of it, with the numbers of the whole model."""
        if canonical.layer is not None:
            first = self._layers.get((chunk, share.layout.get("pp", (0, 1))[0]), 0)
            layer = canonical.layer + (first if share.first_layer is None else share.first_layer)
            name = _LAYER.sub(str(layer), name, count=1)
        if canonical.expert is not None:
            first = self._experts.get(share.layout.get("ep", (0, 1))[0], 0)
            expert = canonical.expert + (first if share.first_expert is None else share.first_expert)
            name = _EXPERT.sub(str(expert), name, count=1)
        return name

    def first_expert(self, share: Share, count: int) -> int:
        """Return the number of the first of the ``count`` experts that a rank holds as one stack."""
        return share.layout.get("ep", (0, 1))[0] * count if share.first_expert is None else share.first_expert


def _offsets(numbers: Mapping[_Key, set[int]]) -> dict[_Key, int]:
    """Return by what each rank's numbers are to grow: nothing where no two ranks have the same."""
    total = sum(map(len, numbers.values()))
    if len(set().union(*numbers.values())) == total:
        return {}
    offsets: dict[_Key, int] = {}
    following = 0
    for key in sorted(numbers):
        offsets[key] = following
        following += max(numbers[key], default=-1) + 1
    return offsets
