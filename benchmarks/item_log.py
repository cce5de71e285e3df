"""A pytest plugin that writes what each item came to, its CPU seconds, and how many of them the APIs themselves took.

    pytest -p item_log --item-log FILE --msprobe-device timed-cpu ...

The device ``timed-cpu`` is the CPU with a clock around each call; the golden calls get the same clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pytest_msprobe.devices.registry import DeviceRegistry


class ItemLog:
    """Times the items of a run and keeps what the plugin attached to their reports."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.api_seconds = 0.0
        self.items: dict[str, dict[str, Any]] = {}
        self._running = ""
        self._began = 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Time an item until the next one starts, its reports and every hook of other plugins included.

        A hook of the item's phases would time another way: the plugin goes round them where no one has one.
        """
        self._end_item()
        self._running, self.api_seconds, self._began = nodeid, 0.0, time.process_time()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """End the last item."""
        result = yield
        self._end_item()
        return result

    def _end_item(self) -> None:
        if self._running:
            times = {"seconds": time.process_time() - self._began, "api_seconds": self.api_seconds}
            self.items.setdefault(self._running, {}).update(times)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what the plugin attached and how a failure ends."""
        if report.when == "call":
            checked = getattr(report, "msprobe", None)
            failure = report.longreprtext[-200:] if report.failed else ""
            self.items.setdefault(report.nodeid, {}).update(checked=checked, failure=failure)

    def pytest_sessionfinish(self) -> None:
        """Write everything."""
        self.path.write_text(json.dumps(self.items))

    def call(self, func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, record: str) -> Any:
        """Call and add the time that it takes to the running item's."""
        start = time.process_time()
        try:
            return func(*args, **kwargs)
        finally:
            self.api_seconds += time.process_time() - start

    @pytest.hookimpl(optionalhook=True)
    def pytest_msprobe_register_devices(self, registry: DeviceRegistry) -> None:
        """Add the timed CPU and put the clock around the golden calls."""
        from pytest_msprobe.devices.cpu import CpuDevice
        from pytest_msprobe.engine.replay.calls import golden

        device = CpuDevice()
        device.name = "timed-cpu"
        device.call = self.call  # type: ignore[method-assign]
        registry.add(device)
        golden.plain_call = self.call


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--item-log", required=True, type=Path)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ItemLog(config.getoption("item_log")))
