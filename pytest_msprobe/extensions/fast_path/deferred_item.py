"""Items that pytest initialises when somebody asks for more than their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from pytest_msprobe.extensions.fast_path.node_keywords import ItemKeywords
from pytest_msprobe.extensions.fast_path.switch import fast_path_key

if TYPE_CHECKING:
    from typing_extensions import Self

# What pytest's initialisation puts into slots that an item without it leaves empty.
_FILLED_SLOTS = frozenset({"_id", "_nodeid", "_store"})


class DeferredItem(pytest.Item):
    """An item of which most are never asked for keywords, marks or properties.

    That is so where 200 000 items are listed, or some of them run.
    """

    __slots__ = ("_is_initialised",)
    # The names of what pytest's own initialisation gives an item.
    _given_by_pytest: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, **kwargs: Any) -> None:
        self._is_initialised = True
        super().__init__(**kwargs)
        if self.config.stash[fast_path_key]:
            self.keywords = ItemKeywords(self)

    @classmethod
    def deferred(cls, file: pytest.File, names: Iterable[str], **attributes: Any) -> Iterator[Self]:
        """Yield an item of each name, which must be such as ids hold, with these attributes; its class adds none.

        Where the fast path is off, pytest initialises each.
        """
        if not file.config.stash[fast_path_key]:
            yield from (cls.from_parent(file, name=name, **attributes) for name in names)
            return
        for name in names:
            if not DeferredItem._given_by_pytest:
                slots = {slot for base in pytest.Item.__mro__ for slot in getattr(base, "__slots__", ())}
                given = vars(cls.from_parent(file, name=name, **attributes))
                DeferredItem._given_by_pytest = frozenset({*given, *slots})
            item = cls.__new__(cls)
            item._is_initialised = False
            item.name, item.parent, item.path = name, file, file.path
            item.config, item.session = file.config, file.session
            for attribute, value in attributes.items():
                setattr(item, attribute, value)
            yield item

    def release(self) -> None:
        """Release all that pytest's initialisation gave the item, which it gives again when that is asked for."""
        if not self.config.stash[fast_path_key] or not DeferredItem._given_by_pytest:
            return
        self.__dict__ = {}
        for slot in _FILLED_SLOTS & DeferredItem._given_by_pytest:
            if hasattr(type(self), slot):
                delattr(self, slot)
        self._is_initialised = False

    def initialize(self) -> None:
        """Set the item up as pytest does."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Return what pytest's initialisation gives, which is now due."""
        if name not in DeferredItem._given_by_pytest or self._is_initialised:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self.initialize()
        return getattr(self, name)

    @property
    def nodeid(self) -> str:
        """The file's id and the item's name."""
        if self._is_initialised or self.parent is None:
            return super().nodeid
        return f"{self.parent.nodeid}::{self.name}"
