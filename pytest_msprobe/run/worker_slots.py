"""Slots of workers: they number the workers of a run and outlive a worker that dies."""

from __future__ import annotations


class Slots:
    """Hands the lowest free slot to each worker, so that a replacement takes over the dead one's card."""

    def __init__(self) -> None:
        self._owners: dict[int, str] = {}

    def take(self, worker: str) -> int:
        """Assign a worker the lowest free slot."""
        slot = next(number for number in range(len(self._owners) + 1) if number not in self._owners)
        self._owners[slot] = worker
        return slot

    def free(self, worker: str) -> None:
        """Take back the slot of a worker that has ended."""
        self._owners = {slot: owner for slot, owner in self._owners.items() if owner != worker}
