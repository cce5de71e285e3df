"""What a search for inf and nan needs of a framework's recorder in addition to any recording."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from msprobe_hooks.recording.recorder import Recorder


class LookingRecorder(Recorder):
    """A recorder that knows which state of a tensor it saw, and whether that holds inf or nan."""

    @abstractmethod
    def version(self, tensor: Any) -> int:
        """Return a number that changes when the tensor does."""

    @abstractmethod
    def tensors_of(self, values: Any) -> list[tuple[Any, int]]:
        """Return the tensors among nested values, each with its version."""

    @abstractmethod
    def looks(self, tensor: Any) -> Any:
        """Return what ``blank`` needs to make a tensor like this one."""

    @abstractmethod
    def blank(self, looks: Any) -> Any:
        """Return a tensor without values."""

    @abstractmethod
    def alias(self, tensor: Any) -> Any:
        """Return a tensor with the same memory and version that keeps nothing else alive."""

    @abstractmethod
    def is_differentiated(self, outputs: Sequence[tuple[Any, int]]) -> bool:
        """Return whether any of these tensors takes a gradient."""

    @abstractmethod
    def is_view_of(self, tensor: Any, others: Sequence[tuple[Any, int]]) -> bool:
        """Return whether a tensor is only another look at one of these."""

    @abstractmethod
    def is_finite(self, tensor: Any) -> bool | None:
        """Return whether a tensor holds neither inf nor nan; None where that would be to wait for a device."""

    @abstractmethod
    def size(self, tensor: Any) -> int:
        """Return how many bytes a tensor's values take."""

    @abstractmethod
    def witnesses(self, tensors: Sequence[Any]) -> list[Any]:
        """Return for each tensor a number, or one that is still on a device, that is finite where the tensor is."""

    @abstractmethod
    def numbers(self, witnesses: Sequence[Any]) -> list[float]:
        """Bring witnesses to the host."""
