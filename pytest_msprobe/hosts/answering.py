"""The controller's answers to what other hosts ask for; they are trusted with the run's files, and with no others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_msprobe.hosts.sending import Baggage
from pytest_msprobe.hosts.taking import Outputs


@dataclass(frozen=True)
class Desk:
    """Answers questions about the files of a run, and takes those that its items wrote."""

    baggage: Baggage
    outputs: Outputs

    def answer(self, question: Any, sender: str) -> tuple[str, Any]:
        """Return a problem, empty if there is none, and what the worker ``sender`` asked for.

        A question is a word, a path and what the word needs beside: ``read`` a part of a file, ``sizes`` of some tensor
        files of a folder, whether the controller ``has`` what an item wrote, ``write`` a part of that.
        """
        try:
            word, name, *more = question
            path = Path(name)
            if word == "read":
                return "", self.baggage.part(path, *more)
            if word == "sizes":
                return "", [self.baggage.size(path / file) for file in more[0]]
            if word == "has":
                return "", self.outputs.has(path, *more)
            if word == "write":
                return self.outputs.write(sender, path, *more), None
        except OSError as error:
            return f"{error.filename or name}: {error.strerror}", None
        except (TypeError, ValueError, LookupError, ArithmeticError):
            pass
        return "a host asked for what is none of its business", None
