"""Operators that compute and communicate: a card has all ranks' calls, and computes what its own rank gets of them.

The ranks exchange their arguments by HCCL, in the group that the call names.
"""

from __future__ import annotations

import ctypes
import io
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from tests.support.cann.example_call import Call

_FOLDER = Path(__file__).parents[1] / "operators"
_DEFINITION = re.compile(r"^def group_(npu_\w+)\(", re.MULTILINE)
#: What the arguments are called that name a group.
_GROUPS = ("hcom", "group", "group_ep")
#: HCCL's numbers of types.
_INT8, _INT64 = 0, 5
#: The numbers by which operators name types of results.
_TYPES = {1: torch.int8, 5: torch.float16, 6: torch.float32, 15: torch.bfloat16}


@cache
def between_ranks() -> dict[str, str]:
    """Return the module of each operator that has a definition of what all ranks get."""
    return {
        name: f"tests.support.cann.operators.{path.stem}"
        for path in sorted(_FOLDER.glob("*.py"))
        for name in _DEFINITION.findall(path.read_text())
    }


def computed_between_ranks(name: str, arguments: list[str]) -> Callable[..., Any]:
    """Return what computes an operator, whose arguments have these names, on tensors of the CPU."""
    results_of = getattr(import_module(between_ranks()[name]), f"group_{name}")

    def compute(*args: Any, **kwargs: Any) -> Any:
        named = dict(zip(arguments, args, strict=False)) | kwargs
        group = _Group(next(named[each] for each in _GROUPS if each in named))
        if isinstance(named.get("y_dtype"), int):
            named["y_dtype"] = _TYPES[named["y_dtype"]]
        calls = [_read(each) for each in group.gather(_write(Call(args, named)))]
        own = results_of(calls)[group.rank]
        return own[0] if len(own) == 1 else own

    return compute


def _write(call: Call) -> bytes:
    buffer = io.BytesIO()
    torch.save(call, buffer)
    return buffer.getvalue()


def _read(saved: bytes) -> Call:
    call: Call = torch.load(io.BytesIO(saved), weights_only=False)
    return call


@cache
def _hccl() -> ctypes.CDLL:
    return ctypes.CDLL("libhccl.so")


class _Group:
    """A group of HCCL as this process holds it. Raises RuntimeError where no group has that name."""

    def __init__(self, name: str) -> None:
        self._handle = ctypes.c_void_p()
        if _hccl().HcomGetCommHandleByGroup(name.encode(), ctypes.byref(self._handle)):
            raise RuntimeError(f"HCCL knows no group {name!r}")
        self.rank, self._size = self._ask("HcclGetRankId"), self._ask("HcclGetRankSize")

    def gather(self, given: bytes) -> list[bytes]:
        """Return what all ranks give, of any length."""
        lengths = (ctypes.c_uint64 * self._size)()
        own = ctypes.c_uint64(len(given))
        self._call("HcclAllGather", ctypes.byref(own), lengths, ctypes.c_uint64(1), _INT64)
        starts = (ctypes.c_uint64 * self._size)(*(sum(lengths[:rank]) for rank in range(self._size)))
        taken = (ctypes.c_char * sum(lengths))()
        self._call("HcclAllGatherV", given, ctypes.c_uint64(len(given)), taken, lengths, starts, _INT8)
        whole = taken.raw
        return [whole[start : start + length] for start, length in zip(starts, lengths, strict=True)]

    def _call(self, function: str, *arguments: Any) -> None:
        """Make a call on the card's default stream, and wait for it."""
        runtime = ctypes.CDLL("libascendcl.so")
        status = getattr(_hccl(), function)(*arguments, self._handle, None) or runtime.aclrtSynchronizeStream(None)
        if status:
            raise RuntimeError(f"{function} failed with {status}")

    def _ask(self, function: str) -> int:
        answer = ctypes.c_uint32()
        getattr(_hccl(), function)(self._handle, ctypes.byref(answer))
        return answer.value
