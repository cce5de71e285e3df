"""Protocol of a framework that is recorded; its recorder implements it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar

from msgspec import UnsetType

from msprobe_hooks.recording.backward import Emit, Inputs
from msprobe_hooks.recording.backward_passes import Engine
from msprobe_hooks.recording.elements import Elements, Shared, TensorEntry
from msprobe_hooks.recording.tensor_entry import Statistics
from msprobe_hooks.recording.tensor_files import TensorFiles


class Framework(ABC):
    """Access to a framework's tensors, and to the course and end of its backward pass."""

    framework: ClassVar[str]
    elements_class: ClassVar[type[Elements]]
    engine: ClassVar[Engine]
    #: What gives the entry that all records of an unchanged tensor share, None where each has its own.
    shared: Shared | None = None

    @abstractmethod
    def quiet(self) -> AbstractContextManager[None]:
        """Return a context in which looking at tensors leaves no trace."""

    @abstractmethod
    def is_grad_enabled(self) -> bool:
        """Return whether what is called now can be differentiated."""

    @abstractmethod
    def is_recompute(self, frame: FrameType | None) -> bool | None:
        """Return whether a call is made by activation checkpointing; None where the framework does not say."""

    @abstractmethod
    def inputs(self, values: Any, awaited: Iterable[Any] = ()) -> Inputs:
        """Return where gradients leave a call for the tensors among its arguments.

        The record is complete when those of the ``awaited`` tensors were seen as well.
        """

    @abstractmethod
    def differentiated(self, values: Any) -> list[Any]:
        """Return the tensors among nested values that take a gradient."""

    @abstractmethod
    def watch(self, outputs: list[Any], inputs: Any, emit: Emit, where: str) -> None:
        """Call ``emit`` with the gradients of a call's outputs and inputs when the backward pass reaches them.

        ``outputs`` are those that take a gradient, ``inputs`` are this framework's. ``where`` is what the gradients are
        named when they cannot be taken.
        """

    @abstractmethod
    def summarise(self, tensor: Any, entry: TensorEntry) -> None:
        """Fill a tensor's entry with what is collected of its values, now or when numbers are fetched."""

    @abstractmethod
    def save(self, tensor: Any, name: str) -> str | UnsetType:
        """Write a tensor under that name, and return what its record says of the file; UNSET where none is written."""

    @abstractmethod
    def forget(self) -> None:
        """Measure everything anew, as after a step."""

    @abstractmethod
    def fetch_numbers(self, waiting: Iterable[Statistics]) -> None:
        """Fetch those numbers to the host that are still on a device."""

    @abstractmethod
    def open_files(self, folder: Path) -> TensorFiles:
        """Return what writes tensors into a folder."""

    def is_failure(self, error: BaseException) -> bool:
        """Return whether a call that raised this has gone wrong."""
        return True
