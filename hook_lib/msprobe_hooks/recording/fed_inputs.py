"""Inputs fed to a module's call, handed over from what feeds it to what records it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FedFrom:
    """The dump and the record that the inputs in some places (``input.0``, ``kwargs.mask``) of a call came from.

    ``args`` and ``kwargs`` are what the program passed: the work of the code before the module,
    which is recorded too.
    """

    dump: str
    record: str
    places: tuple[str, ...]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def details(self) -> dict[str, Any]:
        """Return what the call's own record says of it."""
        return {"dump": self.dump, "record": self.record, "places": list(self.places)}


class _HandedOver(threading.local):
    def __init__(self) -> None:
        self.latest: tuple[Any, FedFrom] | None = None


_handed_over = _HandedOver()


def hand_over(module: Any, fed: FedFrom) -> None:
    """Note what the call of a module that is about to be made was fed."""
    _handed_over.latest = (module, fed)


def forget() -> None:
    """Drop what no recording of this thread took: it holds the tensors of the last call that was fed."""
    _handed_over.latest = None


def take(module: Any) -> FedFrom | None:
    """Return what the call of a module that is about to be made was fed, once; None where it was not."""
    latest = _handed_over.latest
    if latest is None or latest[0] is not module:
        return None
    _handed_over.latest = None
    return latest[1]
