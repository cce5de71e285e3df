"""Containers, which no recording of MindSpore writes."""

from __future__ import annotations

import pytest

from msprobe_hooks import ConfigError, record


def test_a_recording_of_mindspore_refuses_containers(tmp_path):
    with pytest.raises(
        ConfigError, match=r"tensor_files is 'safetensors'; not supported with MindSpore, which writes \.npy"
    ):
        record(tmp_path, framework="mindspore", task="tensor", tensor_files="safetensors").__enter__()
