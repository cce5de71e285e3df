"""What came of each record in a run of pytest, as the controller hears of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.results.result import DirectionResult, from_plain


class _Listener:
    def __init__(self) -> None:
        self.results: dict[str, DirectionResult] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: Any) -> None:
        if hasattr(report, "msprobe"):
            result = from_plain(report.msprobe)
            self.results[result.record] = result


def session_results(pytester: pytest.Pytester, *arguments: str | Path) -> dict[str, DirectionResult]:
    """Run pytest in this process and return the result of each record by its name, in the order of the run."""
    listener = _Listener()
    pytester.inline_run(*arguments, plugins=[listener])
    return listener.results
