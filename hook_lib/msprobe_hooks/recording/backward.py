"""The gradients of one call, put together from hooks on the nodes of an autograd graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

#: Takes the gradients of a call's outputs and those of its inputs.
Emit: TypeAlias = Callable[[list[Any], list[Any]], None]


class Backward:
    """Collects the gradients of one call as they come by, and emits them once.

    ``again`` is told of a further backward pass through the call, ``sum_of`` adds two gradients of one input.
    """

    __slots__ = ("_again", "_arriving", "_emit", "_expected", "_leaving", "_sum")

    def __init__(
        self, outputs: int, inputs: int, emit: Emit, again: Callable[[], None], sum_of: Callable[[Any, Any], Any]
    ) -> None:
        self._again = again
        self._sum = sum_of
        self._arriving: list[Any] = [None] * outputs
        self._leaving: list[Any] = [None] * inputs
        self._expected = 0
        self._emit: Emit | None = emit

    def expect(self) -> None:
        """Count one more hook that will fire if the whole graph of the call is used."""
        self._expected += 1

    def arrive(self, slots: Iterable[tuple[int, int]], gradients: tuple[Any, ...], *, counts: bool) -> None:
        """Take the gradients of outputs: pairs of output and its number on the node that fires."""
        if self._emit is None:
            self._again()
            return
        for slot, number in slots:
            self._arriving[slot] = gradients[number]
        if counts:
            self._note_one()

    def leave(self, places: Iterable[tuple[int, list[int]]], gradients: tuple[Any, ...]) -> None:
        """Take the gradients that a node passes on: pairs of place and the inputs it leads to."""
        if self._emit is not None:
            for place, slots in places:
                gradient = gradients[place]
                if slots and gradient is not None:
                    self._add(slots[0], gradient)
                    for slot in slots[1:]:
                        self._leaving[slot] = self._leaving[slots[0]]
            self._note_one()

    def finish(self) -> None:
        """Emit what came, as when part of the graph was not used; a second time does nothing."""
        emit, self._emit = self._emit, None
        if emit is not None:
            arriving, leaving = self._arriving, self._leaving
            self._arriving, self._leaving = [], []
            emit(arriving, leaving)

    @property
    def is_finished(self) -> bool:
        """Tell whether the record was emitted."""
        return self._emit is None

    def _add(self, slot: int, gradient: Any) -> None:
        known = self._leaving[slot]
        self._leaving[slot] = gradient if known is None else self._sum(known, gradient)

    def _note_one(self) -> None:
        self._expected -= 1
        if self._expected == 0:
            self.finish()


class Arriving:
    """A hook before a node: takes the gradients of outputs."""

    __slots__ = ("_backward", "_begun", "_counts", "_slots")

    def __init__(
        self, backward: Backward, slots: list[tuple[int, int]], begun: Callable[[Backward], None], *, counts: bool
    ) -> None:
        self._counts = counts
        self._backward = backward
        self._slots = slots
        self._begun = begun

    def __call__(self, grad_outputs: tuple[Any, ...]) -> None:
        """Take what arrives at the node."""
        self._begun(self._backward)
        self._backward.arrive(self._slots, grad_outputs, counts=self._counts)


class Leaving:
    """A hook after a node: takes the gradients that it passes on to inputs."""

    __slots__ = ("_backward", "_begun", "_places")

    def __init__(
        self, backward: Backward, places: list[tuple[int, list[int]]], begun: Callable[[Backward], None]
    ) -> None:
        self._backward = backward
        self._places = places
        self._begun = begun

    def __call__(self, grad_inputs: tuple[Any, ...], _: tuple[Any, ...]) -> None:
        """Take what leaves the node."""
        self._begun(self._backward)
        self._backward.leave(self._places, grad_inputs)
