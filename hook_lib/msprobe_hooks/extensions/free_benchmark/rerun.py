"""A call that is made a second time, whatever the framework."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol


class Again(Protocol):
    """A call before it is made, so that it can be made a second time, unseen by the program."""

    #: Whether it may write over what it is given, and whether it has drawn random numbers.
    writes: bool
    draws: bool

    def after_call(self) -> None:
        """Note what the call has done."""

    def results(self, perturbation: str) -> Any:
        """Make the call with perturbed inputs. Raises NotPerturbedError where these cannot be perturbed."""

    def gradients(self, perturbation: str, grad_outputs: list[Any]) -> list[Any]:
        """Return the gradients of perturbed inputs, for those of the outputs that arrived. Raises as ``results``.

        A tensor that was given several times has their sum at each of its places, as a record has it.
        """


def summed(gradients: Iterable[Any], tensors: Sequence[int]) -> list[Any]:
    """Return for each of the tensors, given by their ids, the sum of its gradients, None where it has none.

    A tensor may be among them several times; ``gradients`` are those of each place by itself.
    """
    sums: dict[int, Any] = {}
    for tensor, gradient in zip(tensors, gradients, strict=True):
        if gradient is not None:
            sums[tensor] = sums[tensor] + gradient if tensor in sums else gradient
    return [sums.get(tensor) for tensor in tensors]
