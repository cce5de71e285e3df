"""vLLM on a CPU, recorded while it serves a small model, against transformers: what its log probabilities are of."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support.requirements import require

_ROOT = Path(__file__).parents[3]
_PYTHON = _ROOT / ".venv-vllm" / "bin" / "python"
_PROGRAM = Path(__file__).with_name("vllm_program.py")


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["0.8", "0.9", "processed_logprobs"], ["with temperature 0.8 and top-p 0.9"]),
        (["1.3", "1.0", "raw_logprobs"], []),
    ],
)
def test_log_probabilities_of_vllm_are_explained_by_its_sampling(compare, tmp_path, arguments, words):
    require(_PYTHON.exists(), f"vLLM in {_PYTHON.parents[1].name} (make nightly installs it)")
    path = os.pathsep.join(str(_ROOT / folder) for folder in (".", "hook_lib", "standards"))
    program = [str(_PYTHON), str(_PROGRAM), str(tmp_path), *arguments]
    subprocess.run(program, check=True, timeout=900, env=os.environ | {"PYTHONPATH": path}, capture_output=True)
    found = tmp_path / "found.json"
    result = compare(tmp_path / "serve", tmp_path / "train", "--msprobe-json", found)
    log_probabilities = json.loads(found.read_text())["log_probabilities"]
    assert log_probabilities["tokens"] == 21
    assert [cause["words"] for cause in log_probabilities["causes"]] == words
    assert bool(result.ret) == bool(words)
