"""What conftest files and plugins ask of an item."""

from __future__ import annotations

from typing import Any

import pytest

#: What an item without a function answers.
ANSWERS = {
    "function": None,
    "obj": None,
    "module": None,
    "cls": None,
    "instance": None,
    "fixturenames": [],
    "funcargs": {},
}
#: By what plugins see that an item is parametrized, or that it has fixtures.
TELLING = ("callspec", "_request", "_fixtureinfo")


def assert_has_no_function(item: pytest.Item) -> None:
    """Require that an item has all that plugins ask of a function, and nothing of one."""
    asked: Any = item
    assert {name: getattr(asked, name) for name in ANSWERS} == ANSWERS
    assert asked.originalname == asked.name
    assert asked.parent.obj is None
    assert not any(hasattr(asked, name) for name in TELLING)
