"""Graphs that Ascend's graph engine (GE) runs as a whole, at ``jit_level`` O2: the configuration of what it dumps.

The file and the second variable are those that msprobe 1.2.2 writes (``kernel_graph_dump.py``). Never run: there is no
such engine without CANN.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import mindspore
from mindspore.common.api import context

CONFIG_FILE: Final = "kernel_graph_dump.json"
ACL_VARIABLE: Final = "MS_ACL_DUMP_CFG_PATH"

_LEVEL = "jit_level"
_WHOLE_GRAPHS = "O2"
# In msprobe's order.
_KEYS = "dump_mode path net_name iteration saved_data input_output kernels support_device".split()


def runs_graphs(device_target: str) -> bool:
    """Return whether the program asks for it; first-generation cards, which do so unasked, are not detected."""
    level = context.get_jit_config().get(_LEVEL) or mindspore.get_context(_LEVEL)
    return device_target == "Ascend" and level == _WHOLE_GRAPHS


def engine_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return MindSpore's configuration for a recording as the engine reads it."""
    common = config["common_dump_settings"]
    return {"common_dump_settings": {key: common[key] for key in _KEYS} | {"op_debug_mode": 0, "file_format": "npy"}}


def name_to_library(path: str, config: Mapping[str, Any]) -> None:
    """Name the configuration to ACL, where all kernels are dumped: those of a list MindSpore itself chooses."""
    if config["common_dump_settings"]["dump_mode"] == 0:
        os.environ[ACL_VARIABLE] = path
    else:
        forget()


def forget() -> None:
    """Name no configuration to ACL."""
    os.environ.pop(ACL_VARIABLE, None)
