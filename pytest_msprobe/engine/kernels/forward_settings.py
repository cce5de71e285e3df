"""Settings that kernels of a backward pass are not given, where all kernels of the forward pass had the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msprobe_hooks.dump.static_graph.reader import GraphDump
from pytest_msprobe.engine.values.tensor_files import load_tensor

# Of a kernel: the forward kernel, the slot at which that takes the setting, and the setting's name.
_TAKEN = {"LayerNormGrad": ("LayerNorm", 5, "epsilon"), "DropoutGrad": ("Dropout", 1, "keep_prob")}


def settings_of_forward(dump: GraphDump, kind: str) -> Mapping[str, Any]:
    """Return the settings of a type of kernels that the dump's forward kernels tell, by name.

    Raises DumpError where a file of one of these is unusable.
    """
    if kind not in _TAKEN:
        return {}
    forward, slot, name = _TAKEN[kind]
    taken = (each.inputs[slot] for each in dump.kernels.values() if each.type == forward and slot in each.inputs)
    values = {load_tensor(element, dump.tensor_folder).item() for element in taken}
    return {name: values.pop()} if len(values) == 1 else {}
