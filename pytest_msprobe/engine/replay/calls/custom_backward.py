"""The backward in a graph of gradients that is not one of torch's: its author's formula, which may be wrong."""

from __future__ import annotations

from typing import Any

import torch

from pytest_msprobe.engine.values.pytree import tensors_with_paths


def custom_backward(results: Any) -> str:
    """Return the name of a custom backward that the gradients of results pass; empty where there is none."""
    waiting: list[Any] = [tensor.grad_fn for _, tensor in tensors_with_paths(results) if tensor.grad_fn is not None]
    visited = set(waiting)
    while waiting:
        node = waiting.pop()
        # A custom operator's backward (torch.library.register_autograd) is such a function too.
        if isinstance(node, torch.autograd.function.BackwardCFunction) or type(node).__name__ == "CppFunction":
            return str(node.name()).removeprefix("GeneratedBackwardFor_").removesuffix("Backward")
        successors = {successor for successor, _ in node.next_functions if successor is not None} - visited
        visited |= successors
        waiting += successors
    return ""
