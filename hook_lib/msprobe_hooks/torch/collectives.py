"""Collective communication of ``torch.distributed`` and functional collectives, recorded when it is over.

They are operators that return their result at once, and it is complete after ``wait_tensor``. A recorded one is waited
for at once, so that what it returned can be measured. What a DTensor communicates inside of another operator, where
modes of functions are off, is not seen.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeAlias

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet, _ExcludeDispatchKeyGuard

from msprobe_hooks.dump.communication.collectives import BARRIERS, NEVER_WAITED_FOR, operation_of
from msprobe_hooks.dump.communication.jsonl import Event, Line
from msprobe_hooks.dump.effects import RECEIVED
from msprobe_hooks.recording.call_records import CallRecord
from msprobe_hooks.recording.interposition import Around
from msprobe_hooks.torch.call_mode import is_traced
from msprobe_hooks.torch.collective_hooks import CollectiveHooks
from msprobe_hooks.torch.elements import TorchElements
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recorder import TorchRecorder

# What newer versions of PyTorch call in place of the functions that msprobe records, and FSDP calls at once.
_RENAMED = frozenset({"all_gather_single", "reduce_scatter_single"})
# What counts the changes of a tensor.
_VERSIONS = DispatchKeySet(DispatchKey.ADInplaceOrView)


class Collectives:
    """Records collectives between ``begin`` and ``end``; asynchronous ones when they are waited for."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self._recorder = recorder
        self._hooks: CollectiveHooks[CollectiveCall] = CollectiveHooks(
            self._recording,
            lambda call: call.end(call.given),
            self._note_refused,
            also=BARRIERS | _RENAMED,
            failed=lambda call, error: call.fail(error),
        )

    def begin(self) -> None:
        """Watch the functions and the class whose ``wait`` ends an asynchronous call."""
        self._hooks.begin()

    def end(self) -> None:
        """Stop watching; calls that were never waited for are written without output."""
        for call in self._hooks.end():
            call.end(None, is_complete=False)

    def _note_refused(self, name: str, error: TypeError) -> None:
        self._recorder.summary.note_error(f"Distributed.{name}", error)

    def _recording(self, name: str) -> Around:
        def around(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            recorder = self._recorder
            if not recorder.is_recording or recorder.is_suspended or is_traced():
                return function(*args, **kwargs)
            kind = BarrierCall if name in BARRIERS else CollectiveCall
            call = kind(recorder, operation_of(name) if name in _RENAMED else name, sys._getframe(2))
            call.begin(args, kwargs)
            recorder.is_suspended = True
            try:
                result = function(*args, **kwargs)
            except BaseException as error:
                call.fail(error)
                raise
            finally:
                recorder.is_suspended = False
            with recorder.net(call.name):
                if self._hooks.returned(result, call):
                    call.report("launched")
            return result

        return around


class CollectiveCall(CallRecord):
    """The record of one collective in the making. Its output is what its arguments hold afterwards."""

    count = "calls"

    def __init__(self, recorder: TorchRecorder, name: str, frame: FrameType | None) -> None:
        qualified = f"Distributed.{name}"
        super().__init__(recorder, f"{qualified}.{recorder.number(qualified)}.forward", frame)
        self.given: tuple[Any, Any] = ((), {})
        self._measured = recorder.measured
        self._api = name

    def begin(self, args: Any, kwargs: Any) -> None:
        """Take the arguments before the call, and write that it begins."""
        recorder = self._recorder
        self.given = (args, kwargs)
        try:
            if not recorder.directions.forward or not recorder.filter.admits(self.name):
                return
            self._record = {}
            self._elements = recorder.elements(self.name)
            self._take_given(args, kwargs)
            self._report_beginning(args, kwargs)
        except Exception as error:
            self._record = None
            self._note_error_before(error)

    def _take_given(self, args: Any, kwargs: Any) -> None:
        recorder = self._recorder
        assert self._record is not None
        if recorder.settings.task == "structure" or not recorder.directions.input:
            return
        received = RECEIVED.get(self._api, ())
        with NoDispatch():
            self._record["input_args"] = self._elements.sequence(
                [None if str(place) in received else value for place, value in enumerate(args)], "input"
            )
            self._record["input_kwargs"] = self._elements.mapping(
                {key: None if key in received else value for key, value in kwargs.items()}, "kwargs"
            )
        self._record["is_recompute"] = False

    def _report_beginning(self, args: Any, kwargs: Any) -> None:
        kinds = TorchElements(self.name, lambda tensor, entry: None, None)
        with NoDispatch():
            inputs = kinds.sequence(args, "input"), kinds.mapping(kwargs, "kwargs")
        self._recorder.log_communication(Line("began", self.name, time.time(), *inputs))

    def report(self, event: Event) -> None:
        """Record what has happened to the call, if it is recorded."""
        if self._record is not None:
            with self._recorder.net(self.name):
                self._recorder.log_communication(Line(event, self.name, time.time()))

    def fail(self, error: BaseException) -> None:
        """Record that the call raised, and write a record that says what."""
        self.report("raised")
        super().fail(error)

    def end(self, arguments: tuple[Any, Any] | None, *, is_complete: bool = True) -> None:
        """Take the arguments after the call, or note that it was never waited for."""
        recorder = self._recorder
        # Communication writes without moving version counters, into views as well.
        self._measured.forget()
        if self._record is None:
            return
        if is_complete:
            self.report("ended")
        records_output = recorder.directions.output and recorder.settings.task != "structure"
        with recorder.net(self.name):
            if not is_complete:
                self._record["exception"] = NEVER_WAITED_FOR
            elif arguments is not None and records_output:
                args, kwargs = arguments
                with NoDispatch():
                    self._record["output"] = self._elements.sequence([*args, *kwargs.values()], "output")
            with NoDispatch():
                self._emit()


class BarrierCall(CollectiveCall):
    """A call in which ranks only wait for each other: a line of ``communication.jsonl``, not a record of a dump."""

    def _take_given(self, args: Any, kwargs: Any) -> None:
        pass

    def _emit(self) -> None:
        pass


#: The arguments of an operator by their names.
_Arguments: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Collective:
    """The collective that an operator is recorded as, and its positional arguments: those of ``before`` and ``after``.

    ``is_many``: the operator takes and returns a list of tensors, each of which is a call.
    """

    name: str
    before: Callable[[_Arguments, Tensor], list[Any]]
    after: Callable[[_Arguments, Tensor, Tensor], list[Any]]
    is_many: bool = False


def _alone(name: str, *, is_many: bool = False) -> _Collective:
    """Describe an operator that is recorded as a collective in place."""
    return _Collective(name, lambda arguments, tensor: [tensor], lambda arguments, tensor, result: [result], is_many)


def _into_another(name: str, *, is_many: bool = False) -> _Collective:
    """Describe an operator that is recorded as a collective that writes into another tensor."""
    return _Collective(
        name, lambda arguments, tensor: [None, tensor], lambda arguments, tensor, result: [result, tensor], is_many
    )


def _splits(arguments: _Arguments) -> list[Any]:
    return [list(arguments["output_split_sizes"]), list(arguments["input_split_sizes"])]


_COLLECTIVES: Final = {
    "all_reduce": _alone("all_reduce"),
    "all_reduce_coalesced": _alone("all_reduce", is_many=True),
    "all_gather_into_tensor": _into_another("all_gather_into_tensor"),
    "all_gather_into_tensor_coalesced": _into_another("all_gather_into_tensor", is_many=True),
    "reduce_scatter_tensor": _into_another("reduce_scatter_tensor"),
    "reduce_scatter_tensor_coalesced": _into_another("reduce_scatter_tensor", is_many=True),
    "all_to_all_single": _Collective(
        "all_to_all_single",
        lambda arguments, tensor: [None, tensor, *_splits(arguments)],
        lambda arguments, tensor, result: [result, tensor, *_splits(arguments)],
    ),
    "broadcast": _alone("broadcast"),
}


class FunctionalCollectives:
    """Records the calls of these operators; ``in`` says of a function whether it is one."""

    def __init__(self, recorder: TorchRecorder) -> None:
        self._recorder = recorder
        self._names = dict(_operators())

    def __contains__(self, func: object) -> bool:
        return func in self._names

    def run(self, func: Any, args: Any, kwargs: Any, frame: FrameType | None) -> Any:
        """Make a call, and record it while recording is on."""
        recorder = self._recorder
        if not recorder.is_recording or recorder.is_suspended:
            return func(*args, **kwargs)
        collective = _COLLECTIVES[self._names[func]]
        calls: list[tuple[CollectiveCall, Tensor, dict[str, Any]]] = []
        arguments: _Arguments = {}
        with recorder.net(f"Distributed.{collective.name}"):
            arguments = _by_name(func, args, kwargs)
            named = _named(arguments)
            for tensor in arguments.get("inputs") or [arguments["input"]]:
                call = CollectiveCall(recorder, collective.name, frame)
                call.begin(collective.before(arguments, tensor), named)
                calls.append((call, tensor, named))
        recorder.is_suspended = True
        try:
            result = func(*args, **kwargs)
            tensors = result if collective.is_many else [result]
            if all(type(tensor) is Tensor for tensor in tensors):
                # Gloo copies into some results only now, and a selective checkpoint refuses a changed version.
                with NoDispatch(), _ExcludeDispatchKeyGuard(_VERSIONS):
                    for tensor in tensors:
                        torch.ops._c10d_functional.wait_tensor(tensor)
        except BaseException as error:
            for call, _, _ in calls:
                call.fail(error)
            raise
        finally:
            recorder.is_suspended = False
        with recorder.net(f"Distributed.{collective.name}"):
            for (call, tensor, named), arrived in zip(calls, tensors, strict=True):
                call.end((collective.after(arguments, tensor, arrived), named))
        return result


def _operators() -> Iterator[tuple[Any, str]]:
    """Yield the operators that this PyTorch has, in both of the forms in which they are called, and their names."""
    for name in _COLLECTIVES:
        packet = getattr(torch.ops._c10d_functional, name, None)
        if packet is not None:
            yield packet, name
            yield packet.default, name


def _by_name(func: Any, args: Any, kwargs: Any) -> _Arguments:
    schema = getattr(func, "default", func)._schema
    by_position: dict[str, Any] = dict(zip([argument.name for argument in schema.arguments], args, strict=False))
    return {**by_position, **kwargs}


def _named(arguments: _Arguments) -> dict[str, Any]:
    """Return the arguments that are recorded by name: the reduction, the root as a rank of all, and the group."""
    group = arguments["group_name"]
    if isinstance(group, str):
        group = c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]
    named: dict[str, Any] = {}
    if "reduce_op" in arguments:
        word = str(arguments["reduce_op"])
        named["op"] = getattr(dist.ReduceOp, word.upper(), word)
    if "src" in arguments:
        named["src"] = dist.get_process_group_ranks(group)[arguments["src"]]
    return {**named, "group": group}
