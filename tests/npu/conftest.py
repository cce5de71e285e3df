"""What tests on simulated cards share. All of them are slow: each starts torch anew."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support import runs
from tests.support.npu.process import require_cards, variables


@pytest.fixture
def cards(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give processes that this test starts two cards."""
    require_cards()
    for name, value in variables().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def check_on_npu(cards: None, pytester: pytest.Pytester) -> Callable[..., runs.Checked]:
    """Run pytest on ``npu`` with these arguments, in a process of its own, and read its JUnit file."""

    def run(*arguments: str) -> runs.Checked:
        return runs.check(pytester, "--msprobe-device=npu", *arguments, apart=True)

    return run
