"""Transformations by functions of the user's own, from the hook ``pytest_msprobe_transform``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pytest_msprobe.extensions.transformations.step import NONE_KEPT, SIDES, CallTensors, Shape, Side, StepError
from pytest_msprobe.extensions.transformations.transformations import Entry, NamePattern
from pytest_msprobe.messages import not_one_of

if TYPE_CHECKING:
    import torch

    TensorFunction: TypeAlias = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class OwnFunction:
    """A function of the user's own; it needs the tensor, so that no statistics survive it."""

    function: TensorFunction
    says: str

    @property
    def keeps(self) -> frozenset[str]:
        """Nothing."""
        return NONE_KEPT

    @property
    def files(self) -> Sequence[Path]:
        """No files."""
        return ()

    def shape(self, shape: Shape) -> Shape:
        """Return the shape unchanged: what the function makes of it is not known before it is called."""
        return shape

    def apply(self, tensor: torch.Tensor, call: CallTensors) -> torch.Tensor:
        """Return what the function makes of a copy of the tensor."""
        import torch

        try:
            turned = self.function(tensor.clone())
        except Exception as error:
            first_line = (str(error).strip().splitlines() or [""])[0]
            raise StepError(f"{type(error).__name__}: {first_line}") from None
        if not isinstance(turned, torch.Tensor):
            raise StepError(f"it returned a {type(turned).__name__}, not a tensor")
        return turned.detach().cpu()


class TransformRegistry:
    """Collects the transformations of plugins and ``conftest.py`` files."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def add(self, match: str, side: Side, function: TensorFunction, *, says: str | None = None) -> None:
        """Turn the values of a side that a pattern names by ``function``.

        Args:
            match: Full names of values, such as ``Module.layers.*.output.0``; ``*`` is any text.
            side: ``"target"`` or ``"golden"``.
            function: What returns the turned tensor for the recorded one, a CPU tensor that it may change.
            says: What it does, after the side's name in reports; by default ``turned by`` its name.

        Raises:
            ValueError: There is no such side.
        """
        if side not in SIDES:
            raise ValueError(f"side {side!r} is {not_one_of(side, SIDES)}")
        name = getattr(function, "__name__", type(function).__name__)
        step = OwnFunction(function, says or f"turned by {name}")
        self.entries.append(Entry(NamePattern(match), side, (step,), f"pytest_msprobe_transform, {match}"))
