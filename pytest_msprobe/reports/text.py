"""Text of others, made safe to show: a record's name or a device's message may hold anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

# A log of GitHub Actions takes such a line as a command, whatever printed it.
_COMMAND = re.compile(r"^([ \t]*):(?=:)", re.MULTILINE)


def printable(text: str) -> str:
    """Return a text for a terminal or a log: what has no shape is spelled out, and no line begins with ``::``."""
    return spelled_out(_COMMAND.sub(r"\1\\x3a", text) if "::" in text else text)


def spelled_out(text: str) -> str:
    r"""Return the text with what has no shape spelled out, as in ``\x1b``; line breaks and tabs stay.

    For a single name, which has no line breaks, there is `escaped_name`, and for a text within a line `one_line`.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in "\n\t" else char.encode("unicode_escape").decode() for char in text
    )


def one_line(text: str) -> str:
    """Return the text as one line that can be shown, for places where each line is of something else."""
    return printable(" ".join(text.split("\n")))


def clipped(text: str, length: int) -> str:
    """Return at most ``length`` characters of a text, with a mark where something was left out."""
    return text if len(text) <= length else f"{text[: length - 4]} ..."


def aligned(rows: Sequence[Sequence[str]], numbers: range) -> Iterator[str]:
    """Yield rows of equally many cells as lines, the columns of ``numbers`` to the right and the others to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(width) if place in numbers else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def echo(text: str = "") -> None:
    """Print a text at once, as a terminal can show it: what follows may take long."""
    print(printable(text), flush=True)  # noqa: T201


def code_span(text: str) -> str:
    """Return a text as Markdown code within a line, also in a table: nothing in it is markup."""
    line = one_line(text).replace("|", "\\|")
    quotes = _longer_than_any_run(line, 1)
    padding = " " if line.startswith("`") or line.endswith("`") or not line.strip() else ""
    return f"{quotes}{padding}{line}{padding}{quotes}"


def code_block(text: str) -> str:
    """Return a text as a Markdown block of code."""
    body = printable(text)
    fence = _longer_than_any_run(body, 3)
    return f"{fence}text\n{body}\n{fence}"


def _longer_than_any_run(text: str, least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
