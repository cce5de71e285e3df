"""Runs of pytest over MindSpore dumps, and what is needed for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Loaded once here: pytester drops what an inner run in this process loads, and neither can be loaded twice.
import torch  # noqa: F401

from pytest_msprobe.engine.frameworks.known import missing_piece
from pytest_msprobe.engine.frameworks.registry import framework_named

if missing_piece("mindspore") is None:
    framework_named("mindspore")
else:
    collect_ignore_glob = ["test_*.py"]

Json = dict[str, Any]


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Leave hypothesis out of inner runs: it would be loaded, slowly, by each of them."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return pytester


@pytest.fixture
def write_dump(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Write records as a MindSpore ``dump.json`` and return its path."""

    def write(records: Json, **top: Any) -> Path:
        path = pytester.path / "dump.json"
        envelope = {"task": "statistics", "level": "L1", "framework": "mindspore", "dump_data_dir": None}
        path.write_text(json.dumps(envelope | top | {"data": records}))
        return path

    return write
