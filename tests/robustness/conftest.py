"""Says how many inputs were tried."""

from __future__ import annotations

import pytest

from tests.robustness.budget import tried


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count them by kind, and in all."""
    if tried:
        kinds = ", ".join(f"{count} {kind}" for kind, count in tried.most_common())
        terminalreporter.line(f"mutated inputs: {tried.total()} ({kinds})")
