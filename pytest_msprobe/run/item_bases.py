"""Bases of items: initialised when more than their place is asked for, with the attributes that functions have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar

import pytest

if TYPE_CHECKING:
    from typing_extensions import Self

    from msprobe_hooks.dump.reader import Dump

#: Whether items take a shorter path than pytest's own, in every process of a run: False unless an extension sets it.
fast_path_key = pytest.StashKey[bool]()

#: Returns, of the names of a file's items, those that can run; an extension that knows before items are made sets it.
preselect_key = pytest.StashKey[Callable[[pytest.File, "Dump", Iterable[str]], Iterator[str]]]()


def preselect(file: pytest.File, dump: Dump, names: Iterable[str]) -> Iterator[str]:
    """Yield, of the names of a file's items, those that can run; all of them where nothing says which before."""
    select = file.config.stash.get(preselect_key, None)
    return iter(names) if select is None else select(file, dump, names)


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


# Thousands of items share a path, and pytest would look for its hooks for each.
_hooks_key = pytest.StashKey[dict[Path, Any]]()


def forget_hooks(config: pytest.Config) -> None:
    """Make items ask pytest for their hooks again, once all files are collected and every ``conftest.py`` is known."""
    config.stash.setdefault(_hooks_key, {}).clear()


class FastItem(pytest.Item):
    """An item without fixtures: it has no phase but its call."""

    #: What pytest calls for the item while it runs, where that is not what it calls for a test.
    running_hooks: Any = None
    #: The attributes of the reports that the item can make again, none where it cannot.
    attributes_made_again: frozenset[str] = frozenset()

    @property
    def ihook(self) -> Any:
        """The hooks that pytest calls for the item."""
        if self.running_hooks is not None:
            return self.running_hooks
        hooks = self.config.stash.setdefault(_hooks_key, {})
        if self.path not in hooks:
            hooks[self.path] = super().ihook
        return hooks[self.path]

    def direct_report(self) -> pytest.TestReport | None:
        """Run the item and return the report of its call; None where pytest's hooks are needed, which run it then."""
        return None

    def report_again(
        self, when: Literal["setup", "call", "teardown"], start: float, stop: float, skipped: str | None
    ) -> pytest.TestReport:
        """Return the report of a phase as it was, where the item can make it again."""
        raise NotImplementedError

    def release(self) -> None:
        """Release what the item holds, when it has run."""

    def phase_report(
        self,
        when: Literal["setup", "call", "teardown"],
        start: float,
        stop: float,
        sections: tuple[tuple[str, str], ...] = (),
        skipped: str | None = None,
    ) -> pytest.TestReport:
        """Return the report of a phase that passed, or was ``skipped`` for this reason."""
        return pytest.TestReport(
            # What an id consists of, where pytest knows that, and need not find it in its text.
            getattr(self, "id", self.nodeid),
            self.location,
            {self.name: 1},
            "passed" if skipped is None else "skipped",
            None if skipped is None else (str(self.path), 0, f"Skipped: {skipped}"),
            when,
            sections,
            duration=stop - start,
            start=start,
            stop=stop,
            user_properties=self.user_properties,
        )


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
                attributes_of_pytest = vars(cls.from_parent(file, name=name, **attributes))
                DeferredItem._given_by_pytest = frozenset({*attributes_of_pytest, *slots})
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
    """A base of items that are not functions, with the attributes of those that are.

    ``conftest.py`` files and plugins read them of every item. As with pytest's own items of docstrings, the answer is
    None or empty. Left out is what plugins look for in order to learn what an item is: ``callspec`` (it is
    parametrized), ``_request`` and ``_fixtureinfo`` (it has fixtures).
    """

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
