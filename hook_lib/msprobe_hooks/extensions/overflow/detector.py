"""Detector of inf and nan in calls, and records that may never be written: their values as references."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from msgspec import UNSET, UnsetType

from msprobe_hooks.recording.backward import tensors_in
from msprobe_hooks.recording.elements import Elements, TensorEntry
from msprobe_hooks.recording.recorder import Recorder
from msprobe_hooks.recording.stacks import Stack
from msprobe_hooks.recording.summary import Count

# The version of what no tensor is any longer.
_GONE = -2


class State:
    """A tensor in one of its versions, distinguished from any tensor that gets its address when it is freed.

    States are equal only where they are of one tensor: while a weak reference is kept, Python gives the same one to all
    who ask for one to that object.
    """

    __slots__ = ("_reference", "version")

    def __init__(self, tensor: Any, version: int) -> None:
        self._reference = weakref.ref(tensor)
        self.version = version

    def __eq__(self, other: object) -> bool:
        return isinstance(other, State) and self._reference is other._reference and self.version == other.version

    def __hash__(self) -> int:
        return hash((id(self._reference), self.version))

    def tensor(self) -> Any:
        """Return the tensor, in whichever version it is now; None where it was freed."""
        return self._reference()


class Stub:
    """Remains of a tensor: its memory for as long as it is held, then only where to find it while others keep it.

    ``state`` says which tensor it was, in which version; ``looks`` is what a framework needs to make one like it
    without values.
    """

    __slots__ = ("_alias", "looks", "state")

    def __init__(self, state: State, looks: Any) -> None:
        self.state = state
        self.looks = looks
        self._alias: Any = None

    def find(self) -> Any:
        """Return the tensor, or one that shares its memory; None where it was freed."""
        return self.state.tensor() if self._alias is None else self._alias

    def hold(self, alias_of: Callable[[Any], Any]) -> None:
        """Hold the memory, where it is still there."""
        tensor = self.state.tensor()
        if tensor is not None:
            self._alias = alias_of(tensor)

    def release(self) -> None:
        """Hold the memory no longer."""
        self._alias = None


class Side:
    """Values of a record, with the version that each tensor among them had when it was seen.

    ``form`` is how they become elements. What holds no stubs yet keeps the tensors themselves.
    """

    __slots__ = ("category", "form", "tensors", "values")

    def __init__(
        self,
        form: Literal["sequence", "mapping", "output", "single"],
        values: Any,
        category: str,
        tensors: Sequence[tuple[Any, int]],
    ) -> None:
        self.form = form
        self.values = values
        self.category = category
        self.tensors = tensors

    def put_stubs(self, stub_of: Callable[[Any, int], Stub]) -> None:
        """Keep stubs in place of the tensors."""
        if self.tensors:
            stubs = {id(tensor): stub_of(tensor, version) for tensor, version in self.tensors}
            self.values = mapped(self.values, lambda value: stubs.get(id(value), value))
            self.tensors = ()

    def stubs(self) -> list[Stub]:
        """Return what is kept of tensors."""
        return tensors_in(self.values, Stub)

    def elements(self, values: Any, builder: Elements) -> Any:
        """Return what the values, or others in their place, become in JSON."""
        match self.form:
            case "sequence":
                return builder.sequence(values, self.category)
            case "mapping":
                return builder.mapping(values, self.category)
            case "output":
                return builder.output(values)
            case "single":
                return builder.single(values, self.category)


class PostponedElements:
    """Takes the values of a record as the builder of its elements would, and builds nothing yet.

    ``before_change`` is called with the first tensors of a call that writes over them: one whose name ``says_so``, or
    that something switches on, as ``inplace=True`` does. With ``changes_all`` it writes over all that it is given and
    moves no version.
    """

    __slots__ = ("_before_change", "_changes_all", "_given", "_says_so", "_tensors_of", "details")

    def __init__(
        self,
        tensors_of: Callable[[Any], list[tuple[Any, int]]],
        before_change: Callable[[list[tuple[Any, int]]], None],
        *,
        says_so: bool,
        changes_all: bool = False,
    ) -> None:
        self._tensors_of = tensors_of
        self._before_change = before_change
        self._says_so = says_so
        self._changes_all = changes_all
        self._given: list[tuple[Any, int]] = []
        self.details: dict[str, Any] = {}

    def sequence(self, values: Any, category: str) -> Side:
        """Take positional values."""
        tensors = self._tensors_of(values)
        if category == "input":
            if self._changes_all:
                tensors = self._about_to_change(tensors)
            self._given = tensors
            if self._says_so or any(value is True for value in values):
                self._before_change(self._tensors_of(values[:1]))
        return Side("sequence", values, category, tensors)

    def mapping(self, values: Mapping[str, Any], category: str) -> Side | dict[str, Any]:
        """Take named values."""
        if not values:
            return {}
        tensors = self._tensors_of(values)
        if self._changes_all:
            tensors = self._about_to_change(tensors)
        if values.get("inplace") is True:
            self._before_change((self._given or tensors)[:1])
        return Side("mapping", values, category, tensors)

    def _about_to_change(self, tensors: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
        gone = [(tensor, _GONE) for tensor, _ in tensors]
        self._before_change(gone)
        return gone

    def output(self, value: Any) -> Side:
        """Take what a call returned."""
        return Side("output", value, "output", self._tensors_of(value))

    def single(self, value: Any, path: str) -> Side:
        """Take one value."""
        return Side("single", value, path, self._tensors_of(value))

    def number_storages(self, record: dict[str, Any]) -> None:
        """Note nothing: that is done where the record is built."""


class Observed:
    """A record in the making that may never be made.

    ``forward`` is that of the call whose gradients a backward record holds; ``arrived`` is what waits on a device to be
    looked at.
    """

    __slots__ = ("arrived", "count", "forward", "is_written", "name", "parent", "record", "stack")

    def __init__(
        self,
        name: str,
        record: dict[str, Any],
        parent: str | None,
        count: Count,
        forward: Observed | None,
        stack: Stack | None,
    ) -> None:
        self.name = name
        self.record = record
        self.parent = parent
        self.count: Count = count
        self.forward = forward
        self.arrived: Sequence[Stub] = ()
        self.stack = stack
        self.is_written = False

    def hold(self, alias_of: Callable[[Any], Any]) -> None:
        """Hold the memory of all tensors that are still there."""
        for stub in self.stubs():
            stub.hold(alias_of)

    def release(self) -> None:
        """Hold no memory any longer."""
        for stub in self.stubs():
            stub.release()

    def stubs(self) -> list[Stub]:
        """Return what is kept of tensors."""
        return [*self.arrived, *(stub for side in self.sides() for stub in side.stubs())]

    def sides(self) -> list[Side]:
        """Return what holds values."""
        return [part for part in self.record.values() if type(part) is Side]


def inputs_and_outputs(record: Mapping[str, Any]) -> tuple[list[tuple[Any, int]], Sequence[tuple[Any, int]]]:
    """Return the tensors that a record was given and those that it gave, each with its version."""
    inputs: list[tuple[Any, int]] = []
    outputs: Sequence[tuple[Any, int]] = ()
    for key, side in record.items():
        if type(side) is Side:
            if key == "output":
                outputs = side.tensors
            else:
                inputs += side.tensors
    return inputs, outputs


def mapped(values: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested values with each changed that is not a list, tuple or dict."""
    kind = type(values)
    if kind is tuple or kind is list:
        return kind([mapped(value, change) for value in values])
    if kind is dict:
        return {key: mapped(value, change) for key, value in values.items()}
    return change(values)


class RecordInProgress(Protocol):
    """Description of tensors, which takes what is collected of them."""

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
        """Fetch witnesses to the host."""
