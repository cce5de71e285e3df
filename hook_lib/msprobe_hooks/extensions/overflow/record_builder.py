"""The record of a call that was observed, as it is written."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from msgspec import UNSET, UnsetType

from msprobe_hooks.extensions.overflow.deferred_record import Observed, Side, State, Stub, mapped
from msprobe_hooks.recording.elements import Elements, TensorEntry


class RecordInProgress(Protocol):
    """What describes tensors, and takes what is collected of them."""

    elements_class: ClassVar[type[Elements]]

    def version(self, tensor: Any) -> int:
        """Return a number that changes when the tensor does."""

    def blank(self, looks: Any) -> Any:
        """Return a tensor without values."""

    def former(self, state: State) -> tuple[Any, Any]:
        """Return what is known of the greatest and the least value of a tensor that was freed or has changed."""

    def summarise(self, tensor: Any, entry: TensorEntry) -> None:
        """Fill a tensor's entry."""

    def save(self, tensor: Any, name: str) -> str | UnsetType:
        """Write a tensor to a file; UNSET where none is written."""


class RecordBuilder:
    """Builds the record of one observed call from what its tensors were, where they still are that.

    The ``details`` of a record say of the others that their values were freed or overwritten.
    """

    def __init__(self, recorder: RecordInProgress, observed: Observed, *, with_files: bool) -> None:
        self._recorder = recorder
        self._observed = observed
        self._with_files = with_files
        self._states: dict[int, State] = {}
        self._blanks: list[Any] = []
        #: What was built for each tensor.
        self.entries: list[tuple[State, TensorEntry]] = []
        self._missing: str | None = None
        self._builder = recorder.elements_class(observed.name, self._summarise, self._save)

    def record(self) -> dict[str, Any]:
        """Return the record."""
        observed = self._observed.record
        record = {key: self._built(part) for key, part in observed.items() if key != "output"}
        self._builder.number_storages(record)
        if "output" in observed:
            record["output"] = self._built(observed["output"])
        # A call may have details of its own: the settings of a primitive.
        details = {**record.get("details", {}), **self._builder.details}
        return record | {"details": details} if details else record

    def _built(self, part: Any) -> Any:
        return self._elements(part) if type(part) is Side else part

    def _elements(self, side: Side) -> Any:
        self._states = {id(tensor): State(tensor, version) for tensor, version in side.tensors}
        return side.elements(mapped(side.values, self._found), self._builder)

    def _found(self, value: Any) -> Any:
        if type(value) is not Stub:
            return value
        tensor = value.find()
        if tensor is None:
            # Blanks are kept, so that no other object gets their ids.
            tensor = self._recorder.blank(value.looks)
            self._blanks.append(tensor)
        self._states[id(tensor)] = value.state
        return tensor

    def _summarise(self, tensor: Any, entry: TensorEntry) -> None:
        state = self._states[id(tensor)]
        is_freed = any(blank is tensor for blank in self._blanks)
        if not is_freed and self._recorder.version(tensor) == state.version:
            self._missing = None
            self._recorder.summarise(tensor, entry)
            self.entries.append((state, entry))
        else:
            self._missing = "freed" if is_freed else "overwritten"
            entry.Max, entry.Min = self._recorder.former(state)

    def _save(self, tensor: Any, file: str) -> str | UnsetType:
        if self._missing is not None:
            path = file[len(self._observed.name) + 1 : -len(self._builder.suffix)]
            self._builder.details[path] = {"values": self._missing}
        elif self._with_files:
            return self._recorder.save(tensor, file)
        return UNSET
