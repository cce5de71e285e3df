"""What an exception says, as text that can be kept: others raise it, so nothing of it is trusted."""

from __future__ import annotations

import traceback
from types import TracebackType

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
        # Whatever this is, the first error is the one to tell.
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


def users_part(raised: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the user's first frame on; without one the last frame, or None where that is ours."""
    last = raised
    while raised is not None and _package(raised) in _LIBRARIES:
        raised, last = raised.tb_next, raised
    if raised is not None or last is None or _package(last) == _OURS:
        return raised
    return last


def _package(raised: TracebackType) -> str:
    return str(raised.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
