"""The operators that torch_npu adds: by the independent definitions in ``operators``, else by our golden definition."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from tests.support.cann.kernels.between_ranks import between_ranks, computed_between_ranks
from tests.support.cann.operators import independent, independent_definition

_HALVES = (torch.float16, torch.bfloat16)


def fused(operator: torch._ops.OpOverload) -> Callable[..., Any]:
    """Return what computes an operator on tensors of the CPU; its definition is looked up in the first call.

    Raises RuntimeError, as torch_npu does, in a call of an operator that has no definition.
    """
    name = operator._schema.name.partition("::")[2]
    targets = [argument.name for argument in operator._schema.arguments if argument.is_out]

    @cache
    def definition() -> Callable[..., Any]:
        if name in independent():
            return independent_definition(name)
        other = (
            computed_between_ranks(name, [argument.name for argument in operator._schema.arguments])
            if name in between_ranks()
            else _by_reference(name)
        )
        return functools.partial(_written, other, targets) if targets else other

    return lambda *args, **kwargs: definition()(*args, **kwargs)


def _written(definition: Callable[..., Any], targets: list[str], /, *args: Any, **kwargs: Any) -> Any:
    """Have a definition write the tensors that an overload names for its results, itself or by a copy."""
    parameters = inspect.signature(definition).parameters
    if parameters.keys() >= set(targets):
        return definition(*args, **kwargs)
    out = tuple(kwargs[name] for name in targets)
    others = {name: value for name, value in kwargs.items() if name not in targets}
    if "out" in parameters:
        return definition(*args, **others, out=out if len(out) > 1 else out[0])
    results = definition(*args, **others)
    for target, result in zip(out, results if isinstance(results, tuple) else (results,), strict=False):
        target.copy_(result)
    return out if len(out) > 1 else out[0]


def _by_reference(name: str) -> Callable[..., Any]:
    from pytest_msprobe.engine.replay.references import ReferenceRegistry

    registry = ReferenceRegistry()
    reference = registry.get(f"NPU.{name}") or registry.get(f"Aten.{name}")
    if reference is None:
        function = "aclnn" + "".join(part.capitalize() for part in name.removeprefix("npu_").split("_"))
        raise RuntimeError(f"{function} or {function}GetWorkspaceSize not in libopapi.so, or libopapi.so not found.")

    @functools.wraps(reference)
    def compute(*args: Any, **kwargs: Any) -> Any:
        half = next((leaf.dtype for leaf in tree_leaves((args, kwargs)) if _is_half(leaf)), None)
        wide_args, wide_kwargs = tree_map(lambda leaf: leaf.float() if _is_half(leaf) else leaf, (args, kwargs))
        results = reference(*wide_args, **wide_kwargs)
        _write_back((args, kwargs), (wide_args, wide_kwargs))
        return tree_map(lambda leaf: _rounded(leaf, half), results)

    return compute


def _write_back(given: Any, wide: Any) -> None:
    """Bring what was computed in place from the widened arguments to those that were given."""
    for narrow, widened in zip(tree_leaves(given), tree_leaves(wide), strict=True):
        if _is_half(narrow):
            narrow.copy_(widened)


def _rounded(leaf: Any, half: torch.dtype | None) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach().to(half) if half is not None and leaf.is_floating_point() else leaf.detach()


def _is_half(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype in _HALVES
