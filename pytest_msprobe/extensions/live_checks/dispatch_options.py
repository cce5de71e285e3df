"""Options of a dispatch, checked as msprobe documents them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch

from msprobe_hooks.errors import ConfigError
from msprobe_hooks.messages import shown
from msprobe_hooks.recording.validators import flag, one_of

DumpMode = Literal["all", "list", "auto", "OFF"]

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_MOST_NAMES = 1_000_000

_log = logging.getLogger("pytest_msprobe")


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """Checked options. ``operators`` are those of ``api_list`` that torch has."""

    mode: DumpMode
    operators: frozenset[str]
    debug: bool
    folder: Path
    tag: str | None

    @property
    def tagged(self) -> str:
        """The tag as a part of a folder's name."""
        return f"_{self.tag}" if self.tag else ""

    def dumps(self, operator: str, *, failed: bool) -> bool:
        """Return whether the tensors of a call are written."""
        return self.mode == "all" or (self.mode == "auto" and failed) or operator in self.operators


def checked(
    dump_mode: object, api_list: object, debug: object, dump_path: object, tag: object, process_num: object
) -> DispatchOptions:
    """Check the arguments of a dispatch. Raises ConfigError that names what is wrong and what is allowed."""
    one_of(get_args(DumpMode))("dump_mode", dump_mode)
    flag("debug", debug)
    if not isinstance(dump_path, (str, Path)) or not Path(dump_path).is_dir():
        raise ConfigError("dump_path", dump_path, "an existing folder")
    if tag is not None and not (isinstance(tag, str) and _NAME.fullmatch(tag)):
        raise ConfigError("tag", tag, "letters, digits, _ and -")
    if type(process_num) is not int or process_num < 0:
        raise ConfigError("process_num", process_num, "a whole number from 0")
    if process_num:
        _log.warning("process_num is %d: operators are judged in this process, as they run", process_num)
    names = _operators(api_list) if dump_mode == "list" else frozenset()
    return DispatchOptions(dump_mode, names, debug, Path(dump_path), tag)  # type: ignore[arg-type]


def _operators(api_list: object) -> frozenset[str]:
    if not isinstance(api_list, Sequence) or isinstance(api_list, str) or len(api_list) > _MOST_NAMES:
        raise ConfigError("api_list", api_list, "a list of names of ATen operators, which dump_mode list needs")
    for name in api_list:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError("api_list", name, "names of letters, digits, _ and -")
    unknown = sorted(name for name in set(api_list) if not hasattr(torch.ops.aten, name))
    if unknown:
        _log.warning("api_list: torch.ops.aten has no %s", shown(unknown))
    return frozenset(api_list) - frozenset(unknown)
