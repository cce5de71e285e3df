"""The names that pytest keeps of an item and of what it is in, gathered in one walk up to the session."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest


class ItemKeywords(MutableMapping[str, Any]):
    """An item's names over those of its parents, as pytest's own mapping of them.

    Each item's report holds all names. pytest's asks the item, which asks its file, which asks its folder ..., all of
    them generators, which takes five times as many steps.
    """

    __slots__ = ("_item", "_own")

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._own: dict[str, Any] = {item.name: True}

    def __getitem__(self, name: str) -> Any:
        """Return the value of a name, such as a mark. Raises KeyError for an unknown one."""
        if name in self._own or self._item.parent is None:
            return self._own[name]
        return self._item.parent.keywords[name]

    def __setitem__(self, name: str, value: Any) -> None:
        """Add a name to the item's own."""
        self._own[name] = value

    def __delitem__(self, name: str) -> None:
        """Raise ValueError, as pytest does."""
        raise ValueError("cannot delete key in keywords dict")

    def __iter__(self) -> Iterator[str]:
        """Yield the item's own names, then those of what it is in, each once."""
        names, node = [*self._own], self._item.parent
        while node is not None:
            names += getattr(node.keywords, "_markers", node.keywords)
            node = node.parent
        return iter(dict.fromkeys(names))

    def __len__(self) -> int:
        """Return how many names there are."""
        return sum(1 for _ in self)
