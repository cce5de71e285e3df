from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.dumps.dump_files import Json


@pytest.fixture
def linear(element: Callable[..., Json], forward: Callable[..., Json], write_dump: Callable[..., Path]) -> Path:
    """Write a dump with a product of float32 matrices and a softmax, which is healthy on every device here."""
    x, weight = element(64, 32, requires_grad=True), element(16, 32, requires_grad=True)
    out = element(64, 16)
    return write_dump(
        {
            "Functional.linear.0.forward": forward(x, weight, output=[out]),
            "Functional.softmax.0.forward": forward(x, dim={"type": "int", "value": -1}),
            "Functional.linear.0.backward": {"input": [out], "output": [x, weight]},
        }
    )
