"""What items log, kept for their reports as pytest's log capture keeps it, at less cost.

In each phase of an item pytest attaches two handlers to every logger that does not propagate, and takes them off again.
Where torch is loaded there are some forty of them, and this costs more than all else that pytest does for an item.
Here one handler stays where it is from one item to the next, and is gone before a test of another kind.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import filterfalse
from operator import attrgetter

import pytest

from pytest_msprobe.extensions.fast_path.fast_item import FastItem
from pytest_msprobe.extensions.fast_path.hook_subset import HookSubset

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
            self._loggers = [each for each in registered if isinstance(each, logging.Logger)]
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
