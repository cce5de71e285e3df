"""Setting ``msprobe_fast_path``."""

from __future__ import annotations

import pytest


def add_setting(parser: pytest.Parser) -> None:
    """Add the ini setting."""
    parser.addini(
        "msprobe_fast_path",
        "skip the hooks of pytest that have no effect on items of dumps (default: true)",
        type="bool",
        default=True,
    )
