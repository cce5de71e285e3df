"""What Ascend's graph engine is asked to dump, as msprobe 1.2.2 asks it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ms = pytest.importorskip("mindspore")

from msprobe_hooks.extensions.mindspore.graph_dump import (  # noqa: E402
    ACL_VARIABLE,
    dump_config,
    engine_config,
    name_to_library,
    runs_graphs,
)
from msprobe_hooks.recording.config import settings  # noqa: E402

# What msprobe 1.2.2 was seen to write for task tensor, steps 1 and 2, rank 3 and data_mode ["input"].
WRITTEN = """{
    "common_dump_settings": {
        "dump_mode": 0,
        "path": "PATH",
        "net_name": "Net",
        "iteration": "1|2",
        "saved_data": "tensor",
        "input_output": 1,
        "kernels": [],
        "support_device": [
            3
        ],
        "op_debug_mode": 0,
        "file_format": "npy"
    }
}"""


def test_the_file_is_that_of_the_peer_byte_for_byte() -> None:
    reported = dump_config(settings("dump", task="tensor", step=[1, 2], rank=[3], data_mode=["input"]), "Ascend")
    assert json.dumps(engine_config(reported), indent=4) == WRITTEN.replace("PATH", str(Path("dump").absolute()))


def test_the_library_is_reported_where_all_kernels_are_dumped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ACL_VARIABLE, "former")
    name_to_library("a.json", dump_config(settings("dump"), "Ascend"))
    assert os.environ[ACL_VARIABLE] == "a.json"
    name_to_library("a.json", dump_config(settings("dump", list=["MatMul"]), "Ascend"))
    assert ACL_VARIABLE not in os.environ


def test_whole_graphs_are_run_on_ascend_alone_and_where_the_program_asks() -> None:
    assert not runs_graphs("Ascend")
    ms.set_context(jit_level="O2")
    try:
        assert runs_graphs("Ascend")
        assert not runs_graphs("CPU")
    finally:
        ms.set_context(jit_level="O0")
