"""The hooks of plugins that items on the fast path do without, and pytest's log capture for them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, filterfalse
from operator import attrgetter
from types import MappingProxyType
from typing import Any

import pytest

from pytest_msprobe.run.item_bases import FastItem


class HookSubset:
    """pytest's hooks, each of those in ``left_out`` without these plugins, each in ``around`` as what that returns."""

    def __init__(
        self,
        manager: pytest.PytestPluginManager,
        left_out: Mapping[str, Sequence[object]],
        around: Mapping[str, Callable[[Any], Any]] = MappingProxyType({}),
    ) -> None:
        self._manager = manager
        self._left_out = left_out
        self._around = around
        self._known: dict[object, _Hooks] = {}
        self._by_hooks: dict[object, _Hooks] = {}

    def instead_of(self, hooks: Any) -> Any:
        """Return what takes the place of an item's hooks, which lack those of every conftest.py of other folders."""
        if hooks not in self._by_hooks:
            self._by_hooks[hooks] = self._subset(hooks)
        return self._by_hooks[hooks]

    def _subset(self, hooks: Any) -> _Hooks:
        lacking = frozenset[object](getattr(hooks, "remove_mods", ()))
        already: Mapping[str, Sequence[object]] = getattr(hooks, "left_out", {})
        key = lacking, hooks if already else None
        if key not in self._known:
            left_out = {name: [*already.get(name, ()), *plugins] for name, plugins in self._left_out.items()}
            own = {
                name: self._manager.subset_hook_caller(name, [*lacking, *plugins]) for name, plugins in left_out.items()
            }
            own |= {name: around(own.get(name, getattr(hooks, name))) for name, around in self._around.items()}
            self._known[key] = _Hooks(hooks, {**already, **left_out}, own)
        return self._known[key]


class DirectHook:
    """A hook that is called without pluggy's steps, which take longer than most of what is called.

    Where a plugin wraps the hook, or something watches hooks being called, pluggy calls it.
    """

    def __init__(self, manager: pytest.PytestPluginManager, hook: Any, without: object = None) -> None:
        self._manager = manager
        self._hook = hook
        self._without = without
        self._all = getattr(manager.hook, hook.name)
        self._everyone: list[Any] | None = None
        # With the names of the values that each takes, None if all.
        self._functions: list[tuple[Callable[..., object], Sequence[str] | None]] = []
        self._is_wrapped = False

    def __call__(self, **values: object) -> None:
        """Call the hook of every plugin; results are dropped."""
        if not self.call_directly(values):
            self._hook(**values)

    def call_directly(self, values: Mapping[str, object]) -> bool:
        """Call the hook of every plugin but the one left out; return False, having called none, where pluggy has to."""
        everyone = self._all.get_hookimpls()
        if everyone != self._everyone:
            self._everyone = everyone
            callees = [callee for callee in self._hook.get_hookimpls() if callee.plugin is not self._without]
            self._functions = [
                (callee.function, None if callee.argnames == (*values,) else callee.argnames)
                for callee in reversed(callees)
            ]
            self._is_wrapped = any(callee.wrapper or callee.hookwrapper for callee in callees)
        if self._is_wrapped or self._manager._inner_hookexec.__name__ != "_multicall":
            return False
        all_values = (*values.values(),)
        for function, names in self._functions:
            function(*(all_values if names is None else [values[name] for name in names]))
        return True


class _Hooks:
    """An item's hooks but for its ``own``; ``left_out`` says what these lack."""

    def __init__(self, hooks: Any, left_out: Mapping[str, Sequence[object]], own: Mapping[str, Any]) -> None:
        self._hooks = hooks
        self.left_out = left_out
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        caller = vars(self)[name] = getattr(self._hooks, name)
        return caller


# xdist only passes on what it hears.
_KNOWN = frozenset({"_pytest", "xdist", "pytest_msprobe"})


def has_external_impls(config: pytest.Config, hooks: Iterable[str]) -> bool:
    """Return whether another plugin or a ``conftest.py`` that is loaded by now implements one of the hooks."""
    return any(
        implementation.function.__module__.partition(".")[0] not in _KNOWN
        for name in hooks
        for implementation in getattr(config.hook, name).get_hookimpls()
    )


_PROPAGATES, _HANDLERS = attrgetter("propagate"), attrgetter("handlers")
_PHASES = ("pytest_runtest_setup", "pytest_runtest_call", "pytest_runtest_teardown")


def register_log_capture(config: pytest.Config) -> None:
    """Take pytest's place at items that are judged, unless the user asks more of its log capture than their reports."""
    pytests = config.pluginmanager.get_plugin("logging-plugin")
    formatter = getattr(pytests, "formatter", None)
    if formatter is None or any(_is_set(config, name) for name in ("log_level", "log_cli", "log_cli_level")):
        return
    hooks = HookSubset(config.pluginmanager, dict.fromkeys(_PHASES, (pytests,)))
    config.pluginmanager.register(CapturedLogs(formatter, hooks), "msprobe-captured-logs")


def _is_set(config: pytest.Config, name: str) -> bool:
    return config.getoption(name, None) is not None or bool(config.getini(name))


class CapturedLogs(logging.Handler):
    """A handler that keeps what is logged in a phase of an item, for the section of its report that pytest has too."""

    def __init__(self, formatter: logging.Formatter, hooks: HookSubset) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self._hooks = hooks
        self._lines: list[str] = []
        self._is_in_phase = False
        self._attached: list[logging.Logger] = []
        self._registered: list[logging.Logger | logging.PlaceHolder] = []
        self._loggers: list[logging.Logger] = []
        self._handlers: list[list[logging.Handler]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        if self._is_in_phase:
            self._lines.append(self.format(record))

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        """Fail the item where a message cannot be formatted, as pytest does."""
        raise

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Attach the handler to every logger while items are judged."""
        if not isinstance(item, FastItem):
            return (yield)
        self._attach()
        item.running_hooks = self._hooks.instead_of(item.ihook)
        try:
            return (yield)
        finally:
            item.running_hooks = None
            if not isinstance(nextitem, FastItem):
                self._detach()

    def pytest_sessionfinish(self) -> None:
        """Detach from every logger: a run may end before its last item."""
        self._detach()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """Keep what is logged while an item is set up."""
        return (yield from self._keeping(item, "setup"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Keep what is logged while an item is judged."""
        return (yield from self._keeping(item, "call"))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """Keep what is logged while an item is torn down."""
        return (yield from self._keeping(item, "teardown"))

    def _keeping(self, item: pytest.Item, when: str) -> Iterator[None]:
        if not isinstance(item, FastItem):
            return (yield)
        self._is_in_phase = True
        try:
            return (yield)
        finally:
            self._is_in_phase = False
            if self._lines:
                item.add_report_section(when, "log", "\n".join(self._lines).strip())
                self._lines.clear()

    def _attach(self) -> None:
        """Attach to the root and to every logger whose messages do not reach it, where that is not done yet."""
        root = logging.getLogger()
        registered = [*root.manager.loggerDict.values()]
        if registered != self._registered:
            self._registered = registered
            self._loggers = [entry for entry in registered if isinstance(entry, logging.Logger)]
        # Hundreds of loggers are looked at for each item, without a step of Python for any.
        loggers = [root, *filterfalse(_PROPAGATES, self._loggers)]
        handlers = [*map(_HANDLERS, loggers)]
        if handlers == self._handlers:
            return
        for logger in loggers:
            if self not in logger.handlers:
                logger.addHandler(self)
                self._attached.append(logger)
        self._handlers = [*map(list, handlers)]

    def _detach(self) -> None:
        for logger in self._attached:
            logger.removeHandler(self)
        self._attached.clear()
        self._handlers.clear()


def leave_out_hypothesis_summary(config: pytest.Config) -> None:
    """Take Hypothesis' plugin out of a run that ends, where no test has used it: its summary imports all of it."""
    plugin = sys.modules.get("_hypothesis_pytestplugin")
    # To pluggy, None is a plugin that was blocked.
    if plugin is None or not config.pluginmanager.is_registered(plugin) or "hypothesis" in sys.modules:
        return
    # Tests of other processes may have used it: their reports say so.
    reporter = config.pluginmanager.getplugin("terminalreporter")
    reports = chain.from_iterable(reporter.stats.values()) if reporter else ()
    if not any(name.startswith("_hypothesis") for report in reports for name in vars(report)):
        config.pluginmanager.unregister(plugin)
