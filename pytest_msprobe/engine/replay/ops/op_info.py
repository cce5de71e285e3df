"""Table of operations with special traits, put together from its rows, and results that operations leave open.

The rows are in a module for each kind of operation. An operation without a row has the defaults of ``OpInfo``.
``docs/operations.md`` says what each trait does, and which few tables are with the algorithm that reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import Any

import torch

from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.inputs.constraints.drawn import recorded_numbers
from pytest_msprobe.engine.replay.ops import (
    indexing,
    layers,
    linear_algebra,
    pointwise,
    random_results,
    reductions,
)
from pytest_msprobe.engine.replay.ops.operators import declared
from pytest_msprobe.engine.replay.ops.traits import Arguments, OpInfo
from pytest_msprobe.engine.replay.random_apis.random_property import RandomProperty

# docs/standards-reference.md, "Quantized results"
_NEIGHBOURS = 1 / 8
_KINDS = (pointwise, reductions, indexing, linear_algebra, layers, random_results)


@cache
def op_info(api: str) -> OpInfo:
    """Return what is special about an API: ``norm``, ``linalg.norm`` or, with an overload of ATen, ``norm.out``."""
    name = operation(api)
    is_of_a_library = api.startswith("ops.") and "." in name
    row = TABLE.get(name)
    if row is None and (known := declared(name)) is not None:
        return known.info
    return row or (_OF_A_LIBRARY if is_of_a_library else _NOTHING_SPECIAL)


def _table() -> dict[str, OpInfo]:
    table: dict[str, OpInfo] = {}
    for names, traits in chain(*(kind.ROWS for kind in _KINDS)):
        for name in names.split():
            if name in table:
                raise ValueError(f"{name} has two rows: put all that is special about it into one")
            table[name] = traits
    return table


#: The operations that have a row, by name without namespace and overload.
TABLE: Mapping[str, OpInfo] = _table()
_NOTHING_SPECIAL = OpInfo()
# What the whole numbers of another library's operator are for, its schema does not say.
_OF_A_LIBRARY = OpInfo(constraint=recorded_numbers)


def random_property(api: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> RandomProperty | None:
    """Return what the result of this call must be like, or None where it is not random.

    ``api`` is the API's name without its type, such as ``dropout`` or ``bernoulli_``; a namespace before it and
    an overload after it may stay (``nn.dropout2d``, ``bernoulli.p``). ``args`` and ``kwargs`` are the call's
    inputs before the call, tensors on the CPU. A call that happens not to be random, such as dropout outside of
    training, gives None too.

    Raises TypeError where the call's arguments do not fit the API.
    """
    property_of = op_info(api).random
    if property_of is None:
        return None
    try:
        return property_of(operation(api), args, kwargs)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, ValueError) as error:
        # A tensor of several elements for a probability, words for a shape: the call itself could not use them.
        raise TypeError(f"the recorded arguments of {api} do not fit it: {error}") from error


def accept_implementation_defined(
    operation: str, arguments: Arguments, target: dict[str, Any], golden: dict[str, Any]
) -> None:
    """Write golden's values into the target's results, in place, where the operation leaves them open.

    Both are trees of CPU tensors: the ``output``, a single one in a list, and the ``changed`` arguments by path. Golden
    has None for a result that was not asked for. The arguments are those of the call, by position and by name.
    """
    traits = op_info(operation)
    is_optional = declared(operation) is not None
    if not (traits.quantizes or traits.quantized or is_optional):
        return
    output, right = target["output"], golden["output"]
    if len(output) == len(right):
        pairs = zip(output, right, strict=True)
        found = [None if is_optional and each is None else _accepted(result, each, traits) for result, each in pairs]
        if traits.quantized is not None:
            traits.quantized.accept(arguments, found, list(right))
        target["output"] = type(output)(found)
    kept = golden.get("changed", {})
    for path, changed in target.get("changed", {}).items():
        if path in kept:
            found = _accepted(changed, kept[path], traits)
            if traits.quantized is not None:
                found = traits.quantized.accept_argument(arguments, found, kept[path])
            target["changed"][path] = found


def _accepted(found: Any, right: Any, traits: OpInfo) -> Any:
    if not (isinstance(found, torch.Tensor) and isinstance(right, torch.Tensor)):
        return found
    if found.shape != right.shape or found.dtype != right.dtype or found.dtype not in traits.quantizes:
        return found
    return right if are_neighbours(found.long(), right.long()) else found


def are_neighbours(found: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether whole numbers are equal or next to each other, which one in eight may be."""
    apart = (found - right).abs()
    return bool((apart <= 1).all()) and int(apart.sum()) <= max(1, int(_NEIGHBOURS * apart.numel()))
