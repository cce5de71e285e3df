"""Progress of a run in words: the share that is done, the rate, the time left, what takes long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

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
