"""Attributes that ``conftest.py`` files and plugins read of every item, though only pytest's functions have them.

As with pytest's own items of docstrings, the answer is None or empty. Left out is what plugins look for in order to
learn what an item is: ``callspec`` (it is parametrized), ``_request`` and ``_fixtureinfo`` (it has fixtures).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import pytest

_Made = TypeVar("_Made")


class _Fresh(Generic[_Made]):
    """An attribute that is made each time it is read, so that what is put into it changes no item.

    It can be assigned, and an item that is not asked for it carries nothing.
    """

    def __init__(self, make: Callable[[], _Made]) -> None:
        self._make = make

    def __get__(self, item: pytest.Item | None, owner: type) -> _Made:
        """Make the value."""
        return self._make()


class _NoObject:
    """The Python object of an item that has none.

    An item whose marks have a condition as text has no such attribute: if it had, pytest would look for the names of
    the text in the object's globals.
    """

    def __get__(self, item: pytest.Item | None, owner: type) -> None:
        """Return None. Raises AttributeError for an item with a condition as text."""
        if item is not None and any(isinstance(condition, str) for condition in _conditions(item)):
            raise AttributeError(f"{item.name} has no Python object, in whose globals to look for names of a condition")


def _conditions(item: pytest.Item) -> Iterator[Any]:
    """Yield the conditions of the marks that an item and its parents were given."""
    for node in item.listchain():
        # An item that pytest has not initialised yet was given none.
        for mark in vars(node).get("own_markers", ()):
            yield from (mark.kwargs["condition"],) if "condition" in mark.kwargs else mark.args


class FunctionAttributes:
    """A base of items that are not functions, with the attributes of those that are."""

    name: str

    function = module = cls = instance = None
    obj = _NoObject()
    fixturenames = _Fresh[list[str]](list)
    funcargs = _Fresh[dict[str, Any]](dict)
    # pytest-run-parallel runs a function in threads, and warns of an item that does not say that it has none.
    _parallel_custom_item = True

    @property
    def originalname(self) -> str:
        """The name without parameters; there are none."""
        return self.name

    def _initrequest(self) -> None:
        """Do nothing: there are no fixtures to be set up again, as pytest-retry asks before it runs an item again."""
