"""Locations of the MindSpore functions that are recorded, and the names of their calls."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterator
from typing import Any

from msprobe_hooks.extensions.mindspore import api_lists

# What a call is recorded as, where its function is found, and the names there. A name that two places share is recorded
# under the place that the caller wrote.
_PLACES = (
    ("Functional", "mindspore.ops", api_lists.OPS),
    ("Mint", "mindspore.mint", api_lists.MINT),
    ("MintFunctional", "mindspore.mint.nn.functional", api_lists.MINT_FUNCTIONAL),
    ("Distributed", "mindspore.communication.comm_func", api_lists.COMMUNICATION),
    ("MintDistributed", "mindspore.mint.distributed", api_lists.MINT_DISTRIBUTED),
)

#: Primitives that are a whole layer and that MindSpore's cells make for each call, with how many of their results are
#: more than memory for the gradient's kernel. No cell holds these.
LAYERS = {"LSTM": 3}


def functions() -> Iterator[tuple[Any, str, str]]:
    """Yield the owner, the attribute and the recorded name of every function of this MindSpore that is recorded."""
    from mindspore import Tensor

    for type_, module_name, names in _PLACES:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        for name in sorted(names):
            path, _, attribute = name.rpartition(".")
            owner = _owner(module, path)
            if owner is not None and callable(getattr(owner, attribute, None)):
                yield owner, attribute, f"{type_}.{name}"
    for name in sorted(api_lists.TENSOR):
        if callable(getattr(Tensor, name, None)):
            yield Tensor, name, f"Tensor.{name}"


def layers() -> Iterator[tuple[Any, str, str]]:
    """Yield, as `functions` does, the primitives of `LAYERS`."""
    from mindspore import ops

    for name in LAYERS:
        if hasattr(ops, name):
            yield getattr(ops, name), "__call__", f"Primitive.{name}.{name}"


def _owner(module: Any, path: str) -> Any:
    try:
        return operator.attrgetter(path)(module) if path else module
    except AttributeError:
        return None
