"""The random generators that a call can draw from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from msprobe_hooks.torch.no_dispatch import NoDispatch


class Generators:
    """The states of the generators that a call with these arguments can draw from, as they were when this was made."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        with NoDispatch():
            self._before = [(generator, generator.get_state()) for generator in _generators(leaves)]

    def have_moved(self) -> bool:
        """Return whether numbers were drawn since."""
        with NoDispatch():
            return any(not torch.equal(generator.get_state(), state) for generator, state in self._before)

    def restore(self) -> None:
        """Undo what was drawn since."""
        with NoDispatch():
            for generator, state in self._before:
                generator.set_state(state)


def _generators(leaves: Sequence[Any]) -> Iterator[torch.Generator]:
    yield torch.default_generator
    yield from (leaf for leaf in leaves if isinstance(leaf, torch.Generator))
    for device in {leaf.device for leaf in leaves if isinstance(leaf, Tensor)}:
        if device.index is not None:
            # cuda and npu keep theirs alike; on other devices numbers are drawn on the host.
            yield from getattr(getattr(torch, device.type, None), "default_generators", ())[device.index :][:1]
