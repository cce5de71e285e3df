"""Nested arguments and results: lists, tuples, dicts and what is in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_CONTAINERS = (dict, list, tuple)


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return the same nesting with ``function`` applied to everything that is not a container."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(function, value) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_leaves(function, value) for value in tree))
    if type(tree) in (list, tuple):
        return type(tree)(map_leaves(function, value) for value in tree)
    # torch.return_types.* are tuples that take one sequence, and stay as plain tuples once mapped.
    if isinstance(tree, tuple) and not isinstance(tree, torch.Size):
        return tuple(map_leaves(function, value) for value in tree)
    return function(tree)


def map_tensors(function: Callable[[torch.Tensor], Any], tree: Any) -> Any:
    """Return the same nesting with ``function`` applied to each tensor."""
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def tensors_with_paths(tree: Any, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """Return each tensor with its path, such as ``0``, ``0.1`` or ``kwargs.bias``."""
    if isinstance(tree, torch.Tensor):
        return [(path, tree)]
    if not isinstance(tree, _CONTAINERS):
        return []
    tensors: list[tuple[str, torch.Tensor]] = []
    before = f"{path}." if path else ""
    for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        if isinstance(value, torch.Tensor):
            tensors.append((f"{before}{key}", value))
        elif isinstance(value, _CONTAINERS):
            tensors += tensors_with_paths(value, f"{before}{key}")
    return tensors


def first_leaf(tree: Any, kind: type | tuple[type, ...]) -> Any:
    """Return the first leaf of a kind, None where there is none."""
    if isinstance(tree, kind):
        return tree
    if isinstance(tree, _CONTAINERS):
        for value in tree.values() if isinstance(tree, dict) else tree:
            leaf = first_leaf(value, kind)
            if leaf is not None:
                return leaf
    return None


def map_with_paths(function: Callable[[str, Any], Any], tree: Any, path: str) -> Any:
    """Return the same nesting of recorded containers with ``function`` applied to each leaf and its path."""
    if isinstance(tree, dict):
        return {key: map_with_paths(function, value, f"{path}.{key}") for key, value in tree.items()}
    if type(tree) in (list, tuple):
        return type(tree)(map_with_paths(function, value, f"{path}.{i}") for i, value in enumerate(tree))
    return function(path, tree)
