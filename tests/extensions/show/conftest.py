"""Showing, as the command line does."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from tests.support.fixtures.cases import limits, replay, save, setup


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Run ``pytest-msprobe show`` and return its status with all that it printed."""

    def run(*words: object) -> tuple[int, str]:
        status = main(["show", *map(str, words)])
        printed = capsys.readouterr()
        return status, printed.out + printed.err

    return run


@pytest.fixture
def shown(show: Callable[..., tuple[int, str]]) -> Callable[..., Any]:
    """Run it and return what it found, as its JSON tells it."""

    def run(*words: object) -> Any:
        return json.loads(show(*words, "--json", "-")[1])

    return run


__all__ = ["limits", "replay", "save", "setup"]
