"""Arguments of golden definitions: refused ones, their precision, and twins that copy or write them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def refuse(api: str, **arguments: object) -> None:
    """Raise NotImplementedError that names the first argument that is set; None means that it is not."""
    for name, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"{api} has no golden definition with {name}")


def at_least_float32(x: Tensor) -> Tensor:
    """Widen narrow floats and whole numbers to float32; wider floats stay.

    For what a rounding to whole numbers follows: computed in half precision it would be another whole number.
    """
    return x.to(torch.promote_types(x.dtype, torch.float32))


def functional(of: Callable[..., Any], *written: str, returns: bool = True) -> Callable[..., Any]:
    """Return the twin of an operator that leaves the arguments it writes, and returns copies of them instead.

    They follow the operator's own results, if it has some (``returns``).
    """
    signature = inspect.signature(of)

    @functools.wraps(of)
    def twin(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        copies = {name: bound.arguments[name].clone() for name in written}
        bound.arguments |= copies
        results = of(*bound.args, **bound.kwargs)
        return (*(results if returns else ()), *copies.values())

    own = of.__annotations__["return"].removeprefix("tuple[").removesuffix("]") if returns else ""
    return _named(
        twin, f"{of.__name__}_functional", f"tuple[{', '.join(filter(None, [own, *['Tensor'] * len(written)]))}]"
    )


def in_place(of: Callable[..., Any]) -> Callable[..., Any]:
    """Return the twin of an operator that writes the result to the first argument, and returns that."""
    signature = inspect.signature(of)
    first = next(iter(signature.parameters))

    @functools.wraps(of)
    def twin(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        return bound.arguments[first].copy_(of(*args, **kwargs))

    return _named(twin, f"{of.__name__}_", "Tensor")


def out_of_place(of: Callable[..., Any]) -> Callable[..., Any]:
    """Return the twin of an operator that writes to a copy of the first argument, and returns that."""
    signature = inspect.signature(of)
    first = next(iter(signature.parameters))

    @functools.wraps(of)
    def twin(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.arguments[first] = bound.arguments[first].clone()
        return of(*bound.args, **bound.kwargs)

    return _named(twin, of.__name__.removesuffix("_"), "Tensor")


def _named(twin: Callable[..., Any], name: str, returned: str) -> Callable[..., Any]:
    twin.__name__ = twin.__qualname__ = name
    twin.__signature__ = inspect.signature(twin).replace(return_annotation=returned)  # type: ignore[attr-defined]
    twin.__annotations__ = {**twin.__annotations__, "return": returned}
    return twin
