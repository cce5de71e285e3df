"""Recordings of vLLM 0.32.0 and transformers 5.19.0 on a CPU: one small Qwen3-MoE, clean and with faults planted.

The engine computed two prompts in chunks of at most four tokens, then one token at a time.
"""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

_RECORDED = Path(__file__).parents[2] / "data" / "served_moe.tar.xz"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    with tarfile.open(_RECORDED) as archive:
        archive.extractall(folder, filter="data")
    return folder / "moe"


@pytest.fixture
def found(compare, tmp_path, recorded):
    """Compare a run of the engine with the trainer, and return what the JSON has of it."""

    def run(served):
        path = tmp_path / "found.json"
        result = compare(recorded / served, recorded / "train", "--msprobe-json", path)
        return result.ret, json.loads(path.read_text())

    return run


@pytest.mark.slow
def test_an_engine_that_computes_what_its_trainer_does_passes(found):
    status, json_found = found("serve")
    assert status == 0
    assert json_found["first_module"] is None
    assert json_found["tokens"]["target_only"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "module"),
    [("bf16_router", "layers.0.mlp.gate"), ("no_renormalisation", "layers.0.mlp.experts")],
)
def test_a_fault_of_the_experts_is_found_in_the_module_that_has_it(found, fault, module):
    status, json_found = found(f"serve-{fault}")
    assert status == 1
    first = json_found["first_module"]
    assert (first if isinstance(first, str) else first["name"]) == module
