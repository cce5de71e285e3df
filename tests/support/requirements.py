"""Real parts that some tests run against, and what it means where one is missing."""

from __future__ import annotations

import os

import pytest

#: Set where every part is installed, as in CI: one that is missing is then a failure.
VARIABLE = "MSPROBE_REQUIRE_REAL_PARTS"


def require(is_there: object, part: str) -> None:
    """Skip the running test, or the module that is being collected, where a part of the machine is missing."""
    if is_there:
        return
    if os.environ.get(VARIABLE):
        pytest.fail(f"{part} is missing, and {VARIABLE} is set", pytrace=False)
    pytest.skip(f"needs {part}", allow_module_level=True)
