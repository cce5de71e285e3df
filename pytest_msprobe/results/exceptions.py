"""What an exception says, as text that can be kept: others raise it, so nothing of it is trusted."""

from __future__ import annotations

# Of a longer text nothing more is looked at: a device may put megabytes into one.
_READ = 20_000

_MAX_LENGTH = 400


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
