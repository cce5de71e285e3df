"""Runs of pytest over MindSpore dumps, and what is needed for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.engine.frameworks import framework_named, missing_piece
from tests.support.dumps import dump_files as dumps
from tests.support.dumps.dump_files import Json

# Loaded once here: pytester drops what an inner run in this process loads, and it cannot be loaded twice.
if missing_piece("mindspore") is None:
    framework_named("mindspore")
else:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
def write_dump(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Write records as a MindSpore ``dump.json`` and return its path."""

    def write(records: Json, **top: Any) -> Path:
        return dumps.write_dump(pytester.path, records, **({"framework": "mindspore"} | top))

    return write


@pytest.fixture
def pynative() -> None:
    """Have MindSpore compute call by call, whatever was set before."""
    import mindspore

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
