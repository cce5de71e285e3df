"""Functional collectives, by which DTensors communicate: recorded as the collectives of ``torch.distributed``.

They are operators that return their result at once, and it is complete after ``wait_tensor``. A recorded one is waited
for at once, so that what it returned can be measured. What a DTensor communicates inside of another operator, where
modes of functions are off, is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, TypeAlias

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from torch import Tensor

from msprobe_hooks.torch.collectives import CollectiveCall
from msprobe_hooks.torch.no_dispatch import NoDispatch
from msprobe_hooks.torch.recorder import TorchRecorder

#: The arguments of an operator by their names.
_Given: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Collective:
    """The collective that an operator is recorded as, and its positional arguments: those of ``before`` and ``after``.

    ``is_many``: the operator takes and returns a list of tensors, each of which is a call.
    """

    name: str
    before: Callable[[_Given, Tensor], list[Any]]
    after: Callable[[_Given, Tensor, Tensor], list[Any]]
    is_many: bool = False


def _alone(name: str, *, is_many: bool = False) -> _Collective:
    """Describe an operator that is recorded as a collective in place."""
    return _Collective(name, lambda given, tensor: [tensor], lambda given, tensor, result: [result], is_many)


def _into_another(name: str, *, is_many: bool = False) -> _Collective:
    """Describe an operator that is recorded as a collective that writes into another tensor."""
    return _Collective(
        name, lambda given, tensor: [None, tensor], lambda given, tensor, result: [result, tensor], is_many
    )


def _splits(given: _Given) -> list[Any]:
    return [list(given["output_split_sizes"]), list(given["input_split_sizes"])]


_COLLECTIVES: Final = {
    "all_reduce": _alone("all_reduce"),
    "all_reduce_coalesced": _alone("all_reduce", is_many=True),
    "all_gather_into_tensor": _into_another("all_gather_into_tensor"),
    "all_gather_into_tensor_coalesced": _into_another("all_gather_into_tensor", is_many=True),
    "reduce_scatter_tensor": _into_another("reduce_scatter_tensor"),
    "reduce_scatter_tensor_coalesced": _into_another("reduce_scatter_tensor", is_many=True),
    "all_to_all_single": _Collective(
        "all_to_all_single",
        lambda given, tensor: [None, tensor, *_splits(given)],
        lambda given, tensor, result: [result, tensor, *_splits(given)],
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
        given: _Given = {}
        with recorder.net(f"Distributed.{collective.name}"):
            given = _by_name(func, args, kwargs)
            named = _named(given)
            for tensor in given.get("inputs") or [given["input"]]:
                call = CollectiveCall(recorder, collective.name, frame)
                call.begin(collective.before(given, tensor), named)
                calls.append((call, tensor, named))
        recorder.is_suspended = True
        try:
            result = func(*args, **kwargs)
            tensors = result if collective.is_many else [result]
            if all(type(tensor) is Tensor for tensor in tensors):
                with NoDispatch():
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
                call.end((collective.after(given, tensor, arrived), named))
        return result


def _operators() -> Iterator[tuple[Any, str]]:
    """Yield the operators that this PyTorch has, in both of the forms in which they are called, and their names."""
    for name in _COLLECTIVES:
        packet = getattr(torch.ops._c10d_functional, name, None)
        if packet is not None:
            yield packet, name
            yield packet.default, name


def _by_name(func: Any, args: Any, kwargs: Any) -> _Given:
    schema = getattr(func, "default", func)._schema
    given: dict[str, Any] = dict(zip([argument.name for argument in schema.arguments], args, strict=False))
    return {**given, **kwargs}


def _named(given: _Given) -> dict[str, Any]:
    """Return the arguments that are recorded by name: the reduction, the root as a rank of all, and the group."""
    group = given["group_name"]
    if isinstance(group, str):
        group = c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]
    named: dict[str, Any] = {}
    if "reduce_op" in given:
        word = str(given["reduce_op"])
        named["op"] = getattr(dist.ReduceOp, word.upper(), word)
    if "src" in given:
        named["src"] = dist.get_process_group_ranks(group)[given["src"]]
    return {**named, "group": group}
