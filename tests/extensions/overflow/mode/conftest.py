from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pytest_msprobe.extensions.overflow.ignore_rules import load_rules
from pytest_msprobe.extensions.overflow.nonfinite_origins import Analysis, analyse
from tests.support.dumps.ranks import step


def levels(checked: Any) -> dict[str, str]:
    """Return the level of each record of a run."""
    return {name: case.properties["msprobe.overflow"] for name, case in checked.cases.items()}


@pytest.fixture(scope="session")
def search() -> Callable[..., Analysis]:
    """Analyse the records of ranks 0, 1 ... with the built-in rules."""
    rules = load_rules()
    return lambda *ranks: analyse(step(*ranks), rules)


@pytest.fixture
def check(check: Callable[..., Any]) -> Callable[..., Any]:
    """Run pytest as a user would, whose warnings are no errors."""
    return lambda *arguments, **options: check("-Wdefault::UserWarning", *arguments, **options)
