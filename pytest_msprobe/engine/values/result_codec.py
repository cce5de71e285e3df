"""What a call returned, as the data that crosses a link, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_msprobe.engine.values.dtypes import dtype_named
from pytest_msprobe.engine.values.tensor_codec import FormError
from pytest_msprobe.extensions.remote.messages import (
    AtArgument,
    AtTensor,
    Complex,
    Dtype,
    Fixed,
    Items,
    Members,
    Node,
    Size,
)
from pytest_msprobe.results.skip_reasons import Skip, SkipReason


def as_node(tree: Any, at: Callable[[torch.Tensor], AtTensor | AtArgument]) -> Node:
    """Return an output as data; ``at`` says where each of its tensors is.

    Raises Skip for a value that has no such form.
    """
    if tree is None or type(tree) in (bool, int, float, str):
        return tree  # type: ignore[no-any-return]
    if isinstance(tree, torch.Tensor):
        return at(tree)
    if isinstance(tree, torch.Size):
        return Size(list(tree))
    if isinstance(tree, list):
        return Items([as_node(item, at) for item in tree])
    if isinstance(tree, tuple):
        return Fixed([as_node(item, at) for item in tree])
    if isinstance(tree, dict) and all(isinstance(key, str) for key in tree):
        return Members({key: as_node(item, at) for key, item in tree.items()})
    if isinstance(tree, complex):
        return Complex(tree.real, tree.imag)
    if isinstance(tree, torch.dtype):
        return Dtype(str(tree))
    raise Skip(SkipReason.UNSUPPORTED, f"a result of type {type(tree).__name__} does not cross to another machine")


def from_node(node: Node, tensors: list[torch.Tensor], arguments: Mapping[str, torch.Tensor]) -> Any:
    """Return the output that data describes. Raises FormError where it names what is not there."""
    match node:
        case AtTensor(number):
            if not 0 <= number < len(tensors):
                raise FormError(f"tensor {number} of {len(tensors)}")
            return tensors[number]
        case AtArgument(path):
            if path not in arguments:
                raise FormError(f"the argument {path!r:.80}")
            return arguments[path]
        case Items(items):
            return [from_node(item, tensors, arguments) for item in items]
        case Fixed(items):
            return tuple(from_node(item, tensors, arguments) for item in items)
        case Members(members):
            return {key: from_node(item, tensors, arguments) for key, item in members.items()}
        case Size(sizes):
            return torch.Size(sizes)
        case Complex(real, imag):
            return complex(real, imag)
        case Dtype(name):
            return dtype_named(name)
    return node
