"""Reader of a dump whose recording ended early, as far as it was written."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from msprobe_hooks.dump.reader import FRAMEWORKS, LEVELS, TASKS, Dump, read_dump
from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import read_regular

_HEAD = re.compile(r'"(task|level|framework)"\s*:\s*"(\w+)"')
_DATA = re.compile(r'"data"\s*:\s*\{')
_NEXT = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:\s*")

# Where the text does not say it, the first.
_KNOWN = {"task": TASKS, "level": ("L1", *LEVELS), "framework": FRAMEWORKS}


@dataclass(frozen=True, slots=True)
class ReadDump:
    """A dump, and what is wrong with its file where only a part of it could be read; empty for a whole one."""

    dump: Dump
    problem: str = ""


def read_truncated_dump(path: Path) -> ReadDump:
    """Read a dump; of one that was cut off, or is empty, the records that are whole.

    Raises DumpError for a file that cannot be read or is not a dump.
    """
    try:
        return ReadDump(read_dump(path))
    except DumpError as error:
        try:
            text = read_regular(path).decode("utf-8", "replace")
        except OSError:
            raise error from None
        if not text.strip():
            return ReadDump(Dump(path, "statistics", "L1", "pytorch", {}), "the file is empty")
        data = _DATA.search(text)
        if data is None:
            raise
        head = dict(_HEAD.findall(text[: data.end()]))
        task, level, framework = (head.get(key, allowed[0]) for key, allowed in _KNOWN.items())
        if task not in TASKS or level not in LEVELS or framework not in FRAMEWORKS:
            raise
        records = _whole_records(text, data.end())
        return ReadDump(
            Dump(path, task, level, framework, records), f"the file is cut off after {len(records)} records"
        )


def _whole_records(text: str, place: int) -> dict[str, msgspec.Raw]:
    decoder = json.JSONDecoder()
    records: dict[str, msgspec.Raw] = {}
    while True:
        try:
            name, place = decoder.raw_decode(text, _behind(_NEXT, text, place))
            start = _behind(_COLON, text, place)
            value, place = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            return records
        if not isinstance(name, str) or not isinstance(value, dict):
            return records
        records[name] = msgspec.Raw(text[start:place].encode("utf-8", "backslashreplace"))


def _behind(pattern: re.Pattern[str], text: str, place: int) -> int:
    match = pattern.match(text, place)
    return match.end() if match else place
