"""Which ranks hold one model together, by the sizes of tensor and pipeline parallelism."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Final, TypeAlias

from msprobe_hooks.messages import did_you_mean

#: The ranks of one model: a list for each pipeline stage, of the ranks that share the stage's tensors.
ModelRanks: TypeAlias = list[list[int]]

#: How Megatron numbers ranks, the fastest dimension first.
DEFAULT_ORDER: Final = "tp-cp-ep-dp-pp"
_DIMENSIONS: Final = frozenset(DEFAULT_ORDER.split("-"))


class LayoutError(ValueError):
    """A layout makes no sense, or not for the ranks that were recorded; the text says why."""


@dataclass(frozen=True, slots=True)
class ParallelLayout:
    """How one model is spread over ranks.

    ``tp`` ranks share each tensor, ``pp`` stages share the layers, each in ``vpp`` chunks; all other ranks are data
    parallel. ``order`` says how ranks are numbered, the fastest dimension first. Raises LayoutError.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    order: str = DEFAULT_ORDER

    def __post_init__(self) -> None:
        for name in ("tp", "pp", "vpp"):
            if getattr(self, name) < 1:
                raise LayoutError(f"{name}={getattr(self, name)} is not a valid number of ranks; specify 1 or more")
        if self.vpp > 1 and self.pp == 1:
            raise LayoutError(f"vpp={self.vpp} needs pipeline stages, but pp is 1; specify pp as well")
        words = self.order.split("-")
        if not {"tp", "dp", "pp"} <= set(words) <= _DIMENSIONS or len(set(words)) < len(words):
            raise LayoutError(
                f"order={self.order} is not valid; specify tp, dp and pp once each, as in {DEFAULT_ORDER}"
            )

    def __str__(self) -> str:
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))

    def models(self, ranks: Collection[int]) -> list[ModelRanks]:
        """Return the ranks of each model, one for each data parallel rank, in its order.

        ``ranks`` are those that were recorded. Raises LayoutError where they are not all ranks of whole models.
        """
        size = self.tp * self.pp
        missing = sorted({*range(max(ranks) + 1)} - {*ranks})
        if missing:
            raise LayoutError(f"rank {missing[0]} of ranks 0 to {max(ranks)} is missing; copy the dumps of all ranks")
        if len(ranks) % size:
            raise LayoutError(
                f"tp={self.tp} and pp={self.pp} make {size} ranks of one model, which do not divide the {len(ranks)} "
                "recorded ranks; specify the sizes of the training, and copy all of its ranks"
            )
        sizes = {"tp": self.tp, "pp": self.pp, "dp": len(ranks) // size}
        strides = _strides(self.order.split("-"), sizes)
        return [
            [
                [dp * strides["dp"] + pp * strides["pp"] + tp * strides["tp"] for tp in range(self.tp)]
                for pp in range(self.pp)
            ]
            for dp in range(sizes["dp"])
        ]


def _strides(order: list[str], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return by how much a rank's number grows with its place in each dimension."""
    return {name: math.prod(sizes.get(faster, 1) for faster in order[:i]) for i, name in enumerate(order)}


def read_layout(given: Mapping[str, str]) -> ParallelLayout:
    """Return the layout that words of a user describe, as ``{"tp": "2", "pp": "4"}``. Raises LayoutError."""
    for name, text in given.items():
        if name not in (known := [field.name for field in fields(ParallelLayout)]):
            hint = did_you_mean(name, known) or f"; known: {', '.join(known)}"
            raise LayoutError(f"a layout has no {name!r}{hint}")
        if name != "order" and not (text.isascii() and text.isdigit() and len(text) < 7):
            raise LayoutError(f"{name}={text} is not a valid number of ranks; specify 1 or more")
    sizes = {name: int(text) for name, text in given.items() if name != "order"}
    return ParallelLayout(**sizes, order=given.get("order", DEFAULT_ORDER))
