"""Names under which calls are recorded, by the function that PyTorch reports."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch._ops import OpOverload, OpOverloadPacket

from msprobe_hooks.installed_extensions import implementations
from msprobe_hooks.torch import api_lists

# The plain operator comes first. A method that changes nothing is called by ``+=`` where a number is on the left.
_OPERATORS = {
    "add": {"+": "__add__", "+=": "__radd__"},
    "sub": {"-": "__sub__"},
    "mul": {"*": "__mul__", "*=": "__rmul__"},
    "div": {"/": "__truediv__"},
    "remainder": {"%": "__mod__"},
    "pow": {"**": "__pow__"},
    "matmul": {"@": "__matmul__"},
    "gt": {">": "__gt__", "<": "__gt__"},
    "ge": {">=": "__ge__", "<=": "__ge__"},
    "lt": {"<": "__lt__", ">": "__lt__"},
    "le": {"<=": "__le__", ">=": "__le__"},
    "ne": {"!=": "__ne__"},
    "eq": {"==": "__eq__"},
    "add_": {"+=": "__iadd__"},
    "sub_": {"-=": "__isub__"},
    "mul_": {"*=": "__imul__"},
    "div_": {"/=": "__itruediv__"},
    "remainder_": {"%=": "__imod__"},
    "pow_": {"**=": "__ipow__"},
    "floor_divide_": {"//=": "__ifloordiv__"},
}


#: Functions that change arguments without moving their version counters: running statistics, renormalised rows. So do
# kernels for many tensors at once, and those of torch_npu for all that is known.
WRITING = frozenset(
    {
        "Functional.batch_norm",
        "Functional.instance_norm",
        "Functional.embedding",
        "Functional.embedding_bag",
        "Torch.batch_norm",
        "Torch.instance_norm",
        "Torch.native_batch_norm",
        "Torch._batch_norm_impl_index",
        "Torch.batch_norm_update_stats",
        "Torch.batch_norm_gather_stats",
        "Torch.batch_norm_gather_stats_with_counts",
    }
)


@dataclass(frozen=True, slots=True)
class Api:
    """Recorded form of a function: ``{Type}.{api}``, such as ``Torch.linalg.norm``.

    ``operators`` maps an operator's symbol to the name that its use is recorded under. ``writes`` says that arguments
    may change though their version counters do not; ``written`` are the places of those that a function without
    result was called to change.
    """

    qualified: str
    is_python: bool = False
    operators: dict[str, str] = field(default_factory=dict)
    writes: bool = False
    written: tuple[int, ...] = ()


ApiTable = dict[Callable[..., Any], Api]


def api_table(risk_level: str = "ALL") -> ApiTable:
    """Map every function of the running torch that is to be recorded to its name.

    Some functions are reachable under several names (``F.conv2d is torch.conv2d``); the functional one wins, and for
    ``lstm`` the one of ``torch._VF``, which is how modules call them.
    """
    table: ApiTable = {}
    for type_, namespace, names in (
        ("Torch", torch, api_lists.TORCH | api_lists.OPTIMIZERS),
        ("Tensor", torch.Tensor, api_lists.TENSOR),
        ("VF", torch._VF, api_lists.VF),
        ("Functional", F, api_lists.FUNCTIONAL),
        *chain.from_iterable(of_extension() for of_extension in implementations("recorded_apis")),
    ):
        for name in sorted(names):
            if _is_kept(name, risk_level):
                _enter(table, type_, name, namespace)
    return table


def _enter(table: ApiTable, type_: str, name: str, namespace: Any) -> None:
    try:
        function = operator.attrgetter(name)(namespace)
    except AttributeError:
        return
    if not callable(function):
        return
    operators = _OPERATORS.get(name, {}) if type_ == "Tensor" else {}
    entered = table.get(function)
    # ``__iadd__`` and ``add_`` are one method in some versions of torch; the plain name carries the operators.
    if entered is not None and entered.operators and not operators:
        return
    qualified = f"{type_}.{name}"
    is_of_optimizers = name in api_lists.OPTIMIZERS and name.endswith("_")
    table[function] = Api(
        qualified,
        isinstance(function, FunctionType),
        {symbol: f"{type_}.{dunder}" for symbol, dunder in operators.items()},
        writes=is_of_optimizers or type_ == "NPU" or qualified in WRITING,
        written=_written(getattr(torch.ops.aten, name)) if is_of_optimizers else (),
    )


def operator_api(function: OpOverloadPacket | OpOverload) -> Api:
    """Return what is recorded of an operator of a library: ``torch.ops.torchvision.nms``."""
    written = _written(function)
    return Api(f"torch.ops.{function}", writes=bool(written), written=written)


def _written(function: OpOverloadPacket | OpOverload) -> tuple[int, ...]:
    overload = function if isinstance(function, OpOverload) else getattr(function, function.overloads()[0])  # type: ignore[no-untyped-call]
    schema = overload._schema
    return tuple(
        place for place, argument in enumerate(schema.arguments) if argument.alias_info and argument.alias_info.is_write
    )


def _is_kept(name: str, risk_level: str) -> bool:
    if risk_level == "CORE":
        return name in api_lists.CORE
    return risk_level == "ALL" or name not in api_lists.LOW_RISK
