"""Progress of a long run: drawn below pytest's own lines on a terminal, a line each minute where there is none."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

import pytest

from pytest_msprobe.reports.report_payload import worker_of
from pytest_msprobe.reports.text import printable

#: An item that runs for so many seconds is reported.
LONG = 10.0


@dataclass
class RunProgress:
    """Counts items as they start and finish; times are in seconds, of one clock.

    ``running`` holds, by the id of each item that has started and not finished, its worker (empty where there is only
    one process) and when it started.
    """

    began: float | None = None
    done: int = 0
    failed: int = 0
    running: dict[str, tuple[str, float]] = field(default_factory=dict)

    def start(self, item: str, worker: str, now: float) -> None:
        """Count an item that starts."""
        self.began = now if self.began is None else self.began
        self.running[item] = worker, now

    def finish(self, item: str) -> None:
        """Count an item that is done."""
        self.done += 1
        self.running.pop(item, None)


def progress_lines(progress: RunProgress, total: int, now: float) -> Iterator[str]:
    """Yield the share, the failures, the rate and the time left in one line, once an item is done.

    ``total`` is 0 where it is not known.
    """
    if not progress.done or progress.began is None:
        return
    rate = progress.done / max(now - progress.began, 1e-9)
    is_share_known = progress.done <= total
    parts = [
        f"{progress.done} of {total} ({progress.done / total:.0%})" if is_share_known else f"{progress.done} done",
        f"{progress.failed} failed" if progress.failed else "",
        _rate(rate),
        f"{duration((total - progress.done) / rate)} left" if is_share_known else "",
    ]
    yield ", ".join(filter(None, parts))


def long_lines(progress: RunProgress, now: float, most: int) -> Iterator[str]:
    """Yield what has run for long, the longest first, by at most so many lines."""
    started = sorted((start, worker, item) for item, (worker, start) in progress.running.copy().items())
    slow = [(now - start, worker, item) for start, worker, item in started if now - start >= LONG]
    for seconds, worker, item in slow[:most]:
        yield f"{f'{worker} ' if worker else ''}for {duration(seconds)} on {item.rpartition('::')[2]}"
    if 0 < most < len(slow):
        yield f"and {len(slow) - most} more for {LONG:.0f} s or longer"


def duration(seconds: float) -> str:
    """Return a time as ``m:ss``, or ``h:mm:ss`` from an hour on."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _rate(rate: float) -> str:
    return f"{rate:.0f}/s" if rate >= 10 else f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"


#: The name of the plugin, for ``-p no:msprobe-progress-line``.
NAME = "msprobe-progress-line"

# Seconds, where lines are drawn over and where, as in a file, each one stays. A choice.
_DRAWN_EVERY = 0.5
_WRITTEN_EVERY = 60.0
# A shorter run is over before anybody asks.
_SHORT = 2.0
_WORKERS_SHOWN = 16

# What every terminal since the VT100 understands: the cursor one line down (scrolling at the bottom) and up in its
# column, saved and brought back, and what is after it erased.
_DOWN, _UP, _SAVE, _RESTORE, _ERASE, _ERASE_LINE = "\x1bD", "\x1bM", "\x1b7", "\x1b8", "\x1b[J", "\x1b[K"


class ProgressLine:
    """Follows the items of a run, in the process that hears of all of them."""

    def __init__(self, config: pytest.Config, output: int, card_of: Callable[[str], str]) -> None:
        """``output`` is a file descriptor of our own: pytest redirects the usual ones while an item runs.

        ``card_of`` returns the card of a worker by the id of its gateway; it is empty where that is not known.
        """
        self._output = output
        self._card_of = card_of
        is_captured = config.getoption("capture", "no") != "no"
        self._is_drawn = os.isatty(output) and os.environ.get("TERM") != "dumb" and is_captured
        self._most_long = _WORKERS_SHOWN if config.get_verbosity() > 0 else int(self._is_drawn)
        self._session: pytest.Session | None = None
        self._progress = RunProgress()
        self._is_over = threading.Event()
        # Held while something is written: what has the terminal for itself meanwhile waits for the rest of a line.
        self._terminal = threading.Lock()
        self._is_debugged = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Iterator[None]:
        """Report the run's progress as long as it lasts."""
        if session.config.option.collectonly:
            return (yield)
        self._session = session
        thread = threading.Thread(target=self._report, name=NAME, daemon=True)
        thread.start()
        try:
            return (yield)
        finally:
            self._is_over.set()
            thread.join()

    @pytest.hookimpl(tryfirst=True)
    def pytest_exception_interact(self, node: pytest.Item) -> None:
        """Leave the terminal to the debugger that ``--pdb`` starts, from what pytest prints before it on."""
        if node.config.getoption("usepdb", False):
            self.pytest_enter_pdb()

    def pytest_enter_pdb(self) -> None:
        """Leave the terminal to a debugger."""
        with self._terminal:
            if self._is_drawn and not self._is_debugged:
                self._write(_ERASE)
            self._is_debugged = True

    def pytest_leave_pdb(self) -> None:
        """Go on reporting."""
        self._is_debugged = False

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Count an item that starts; no debugger is left open behind it."""
        self._is_debugged = False
        self._progress.start(nodeid, "", time.monotonic())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failures, and learn which worker an item is on."""
        worker = worker_of(report) if report.when == "setup" else ""
        if worker:
            self._progress.start(report.nodeid, self._named(worker), time.monotonic())
        if report.outcome == "failed":
            self._progress.failed += 1

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Count an item that is done."""
        self._progress.finish(nodeid)

    def _named(self, worker: str) -> str:
        card = self._card_of(worker)
        return f"{worker} ({card})" if card else worker

    def _report(self) -> None:
        """Write what is known, again and again; this is a thread of its own, since one item may take minutes."""
        if self._is_drawn:
            every, write = _DRAWN_EVERY, self._draw
            self._is_over.wait(_SHORT)
        else:
            every, write = _WRITTEN_EVERY, self._write_lines
            self._is_over.wait(_WRITTEN_EVERY)
        while not self._is_over.is_set():
            lines = self._lines()
            with self._terminal:
                if not self._is_debugged:
                    write(lines)
            self._is_over.wait(every)
        if self._is_drawn:
            self._write(_ERASE)

    def _lines(self) -> list[str]:
        total = 0 if self._session is None else self._session.testscollected
        now = time.monotonic()
        lines = [*progress_lines(self._progress, total, now), *long_lines(self._progress, now, self._most_long)]
        return [printable(line) for line in lines]

    def _draw(self, lines: list[str]) -> None:
        """Draw lines below the one that pytest is writing, and leave the cursor in it.

        A terminal that was closed ends the display, and no run.
        """
        try:
            # A terminal whose size no one has set has none.
            width = os.get_terminal_size(self._output).columns or 80
        except OSError:
            self._is_over.set()
            return
        room = _DOWN * len(lines) + _UP * len(lines)
        drawn = "".join(f"{_DOWN}\r{_ERASE_LINE}{line[: width - 1]}" for line in lines)
        self._write(f"{_ERASE}{room}{_SAVE}{drawn}{_RESTORE}")

    def _write_lines(self, lines: list[str]) -> None:
        self._write("".join(f"\nmsprobe: {line}" for line in lines) + "\n")

    def _write(self, text: str) -> None:
        try:
            os.write(self._output, text.encode(errors="backslashreplace"))
        except OSError:
            self._is_over.set()


def register_progress(config: pytest.Config, card_of: Callable[[str], str]) -> None:
    """Report the run's progress, unless the user wants less output, or another plugin draws it."""
    manager = config.pluginmanager
    if config.get_verbosity() < 0 or not manager.hasplugin("terminalreporter") or manager.hasplugin("sugar"):
        return
    if manager.is_blocked(NAME):
        return
    try:
        output = os.dup(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):
        # What a program put in its place, or has closed.
        return
    # Not when the items are done: of a run that only lists something, or finds no file, none is begun.
    config.add_cleanup(partial(os.close, output))
    manager.register(ProgressLine(config, output, card_of), NAME)
