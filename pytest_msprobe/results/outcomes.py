"""Outcomes of an item: with a verdict, or without one."""

from __future__ import annotations

import traceback
from enum import Enum
from types import TracebackType


class Breakdown(Enum):
    """Reason why an item failed before there was anything to measure; the value is what reports call it."""

    CRASH = "crash"
    TIMEOUT = "timeout"
    OOM = "oom"
    ERROR = "error"
    RUN = "run"
    RECORD = "record"
    POLICY = "policy"
    BASELINE = "baseline"
    TEST = "test"

    @property
    def did_not_end(self) -> bool:
        """Return whether the item never came to its end; such an item has an outcome of its own."""
        return self in _DID_NOT_END

    @property
    def may_break_device(self) -> bool:
        """Return whether the device may be unusable after it."""
        return self in (Breakdown.RUN, Breakdown.TIMEOUT, Breakdown.OOM, Breakdown.ERROR)


_DID_NOT_END = (Breakdown.CRASH, Breakdown.TIMEOUT, Breakdown.OOM, Breakdown.ERROR)

#: The outcomes of items that did not end.
UNFINISHED = tuple(kind.value for kind in _DID_NOT_END)

#: What may come of an item: a verdict's outcomes, and those of items that did not end.
OUTCOMES = ("pass", "warn", "fail", "skip", *UNFINISHED)


# Of a longer text nothing more is looked at: a device may put megabytes into one.
_READ = 20_000

_MAX_LENGTH = 400

# A deep recursion has thousands.
_FRAMES = 8

# What stands between a check and the user's code.
_OURS = "pytest_msprobe"
_LIBRARIES = (_OURS, "torch", "mindspore")


def message_of(error: BaseException) -> str:
    """Return the beginning of what an error says, also where that cannot be asked or is no UTF-8."""
    try:
        text = str(error)[:_READ]
    except BaseException as second:
        # Whatever this is, the first error is the one to report.
        text = f"(its text cannot be made: {type(second).__name__})"
    return text.encode("utf-8", "backslashreplace").decode()


def describe_error(error: BaseException) -> str:
    """Return an error's kind and the first lines of its text; native stack traces are left out."""
    kind = type(error).__name__
    text = message_of(error).split("Exception raised from")[0].split("\nC++ CapturedTraceback")[0].strip()
    shortened = text if len(text) <= _MAX_LENGTH else f"{text[:_MAX_LENGTH]}..."
    return f"{kind}: {shortened}" if shortened else kind


def place_of(error: BaseException) -> str:
    """Return where an error was raised, as the last lines of its traceback; empty where that is not known."""
    # The text of the error is not repeated: it can be large, or fail to be made.
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-_FRAMES)).rstrip()
    return f"Raised at (most recent call last):\n{frames}" if frames else ""


def users_error(error: BaseException) -> BaseException:
    """Return the error that the user's code raised, with its traceback from the user's first frame on.

    Some errors are raised again by this package, such as those of MindSpore, whose text quotes native stacks.
    """
    while error.__cause__ is not None and _packages(error.__traceback__)[-1:] == [_OURS]:
        error = error.__cause__
    return error.with_traceback(_users_part(error.__traceback__))


def _users_part(raised: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames before the user's first; without one, the last frame if it is not ours."""
    packages = _packages(raised)
    skipped = next((place for place, package in enumerate(packages) if package not in _LIBRARIES), len(packages))
    if skipped == len(packages) and packages and packages[-1] != _OURS:
        skipped -= 1
    for _ in range(skipped):
        raised = raised and raised.tb_next
    return raised


def _packages(raised: TracebackType | None) -> list[str]:
    """Return the package of each frame of a traceback."""
    packages = []
    while raised is not None:
        packages.append(str(raised.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
        raised = raised.tb_next
    return packages
