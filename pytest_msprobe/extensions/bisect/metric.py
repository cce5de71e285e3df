"""The number that is compared, read from a run of the command."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_msprobe.errors import CommandError

# What is written with a point, an exponent or as no finite number: a count of steps is not the loss.
_FLOAT = re.compile(
    r"(?<![\w.])[-+]?(?:(?:\d+\.\d*|\.\d+)(?:e[-+]?\d+)?|\d+e[-+]?\d+|nan|inf(?:inity)?)(?!\w)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Metric:
    """The exit status, or the last match of a pattern in standard output; without a pattern, of a float."""

    pattern: re.Pattern[str] | None = None
    is_exit_status: bool = False

    def __str__(self) -> str:
        if self.is_exit_status:
            return "the exit status"
        return "the last float of standard output" if self.pattern is None else f"the last {self.pattern.pattern!r}"

    def of(self, status: int, output: str) -> float:
        """Return the number of a run. Raises CommandError where it gave none."""
        if self.is_exit_status:
            return float(status)
        pattern = self.pattern or _FLOAT
        matches = list(pattern.finditer(output))
        if not matches:
            what = "prints no float" if self.pattern is None else f"prints nothing that matches {pattern.pattern!r}"
            raise CommandError(
                f"the command {what}; its output ends with {output[-_SHOWN:]!r}",
                remedy="pass --metric REGEX or --exit-status",
            )
        last = matches[-1]
        text = last[1] if pattern.groups else last[0]
        try:
            return float(text)
        except (TypeError, ValueError):
            raise CommandError(
                f"--metric {pattern.pattern!r} matches {last[0]!r}: {text!r} is not a number",
                remedy="put the number into the pattern's first group, such as 'loss=(\\S+)'",
            ) from None


_SHOWN = 200


def read_metric(pattern: str | None, *, is_exit_status: bool) -> Metric:
    """Return the metric of the command's options. Raises CommandError for a pattern that is none."""
    try:
        return Metric(None if pattern is None else re.compile(pattern, re.MULTILINE), is_exit_status)
    except re.error as error:
        raise CommandError(f"--metric {pattern!r}: not a regular expression: {error}") from None
