"""Dumps of kernels: a file for each that runs, named as CANN names it; what would be in it is not simulated."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

from tests.support.cann import runtime_calls

_FOLDER = "20260101000000"
_TIME = 1767225600000000
_tasks = count()


def note(operator: str, card: int) -> None:
    """Leave the file of a kernel where kernels are being dumped."""
    configuration = runtime_calls.dump_configuration()
    if not configuration:
        return
    path = json.loads(Path(configuration).read_text())["dump"]["dump_path"]
    folder = Path(path) / _FOLDER / str(card)
    folder.mkdir(parents=True, exist_ok=True)
    kind, task = operator.partition("::")[2], next(_tasks)
    (folder / f"{kind}.{kind}_{task}.{task}.0.{_TIME}").touch()
