"""Which trainable parameters of a model are watched with an optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msprobe_hooks.extensions.monitor.watch.live_objects import are_hidden
from msprobe_hooks.extensions.monitor.watch.optimizer_step import OptimizerState
from msprobe_hooks.extensions.monitor.watch.parameters import Weight
from msprobe_hooks.messages import listed

_UNSEEN = " (optimizers created before gc.freeze() are not seen, and may have them)"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters by what becomes of them.

    ``forgotten`` are the watched ones that no optimizer has, ``of_others`` those that only other optimizers have.
    ``frozen`` take no gradient. With ``are_optimizers_hidden`` other optimizers may have the forgotten ones.
    """

    watched: Sequence[Weight]
    frozen: Sequence[Weight]
    forgotten: Sequence[Weight] = ()
    of_others: Sequence[Weight] = ()
    are_optimizers_hidden: bool = False

    def notes(self) -> Iterator[str]:
        """Yield a line for each reason why parameters are not watched, or not updated."""
        if self.forgotten:
            yield (
                f"parameters in no optimizer of this process: {_named(self.forgotten)}; add them to the optimizer "
                "if no other rank updates them, or set requires_grad to False if they are meant to be frozen"
                f"{_UNSEEN if self.are_optimizers_hidden else ''}"
            )
        if self.of_others:
            yield (
                f"parameters not monitored, because another optimizer has them: {_named(self.of_others)}; "
                "monitor that optimizer as well"
            )
        if self.frozen:
            yield f"parameters not monitored, because requires_grad is False: {_named(self.frozen)}"


def parameters_with(
    optimizer: OptimizerState,
    weights: Sequence[Weight],
    frozen: Sequence[Weight],
    others: Callable[[], Iterable[OptimizerState]],
) -> Parameters:
    """Return what of the parameters is watched with an optimizer: all but those that only ``others`` have.

    What is in no optimizer may have been forgotten. It is watched, so that its series shows that it never changes.
    """
    stepped = set(optimizer.stepped(weights))
    rest = [one for one in weights if one not in stepped]
    of_others: set[Weight] = set()
    for other in others() if rest else ():
        # Not an optimizer that the user gave to watch: one that cannot be asked yet must not end the training.
        with suppress(Exception):
            of_others.update(other.stepped(rest))
    return Parameters(
        watched=[one for one in weights if one not in of_others],
        frozen=frozen,
        forgotten=[one for one in rest if one not in of_others],
        of_others=[one for one in rest if one in of_others],
        are_optimizers_hidden=are_hidden(),
    )


def _named(weights: Iterable[Weight]) -> str:
    return listed(f"{one.chunk}:{one.name}" if one.chunk else one.name for one in weights)
