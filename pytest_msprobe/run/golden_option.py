"""What a run is compared with: ``--msprobe-golden``, which several kinds of run have."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.errors import OptionError

GOLDEN = "--msprobe-golden"


def golden_path(config: pytest.Config, flag: str, what: str) -> Path:
    """Return the path beside ``flag``, which names ``what`` under test. Raises OptionError."""
    golden: str | None = config.getoption("msprobe_golden")
    if not golden:
        raise OptionError(f"{flag} names the {what} under test: give {GOLDEN} PATH as well")
    path = config.invocation_params.dir / golden
    if not path.exists():
        raise OptionError(f"{GOLDEN} {golden!r}: no such file or folder")
    return path
