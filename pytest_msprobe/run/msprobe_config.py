"""The section of msprobe's ``config.json`` that is about a check, ``run_ut`` or in 26.x ``acc_check``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.errors import OptionError

_SECTIONS = ("run_ut", "acc_check")

# Keys of online checking and of quantization, with the values that msprobe's own file has for them.
_UNUSED: Mapping[str, tuple[object, ...]] = {
    "is_online": (False,),
    "nfs_path": ("",),
    "host": ("",),
    "port": (-1,),
    "rank_list": ([], [0]),
    "tls_path": ("", "./"),
    "quantization_api_list": ([],),
}

# Each copy of msprobe's own file has it, and msprobe saves nothing by it alone.
_NO_PATH = ("", ".", "./")


@dataclass(frozen=True, slots=True)
class RunUt:
    """Settings of the section ``run_ut``; None and empty where it has none.

    ``white_list`` and ``black_list`` are names of APIs without their type. ``unused`` are keys that were read and have
    no meaning here.
    """

    file: Path | None = None
    white_list: tuple[str, ...] = ()
    black_list: tuple[str, ...] = ()
    error_data_path: Path | None = None
    precision: int | None = None
    unused: tuple[str, ...] = ()

    def header(self) -> list[str]:
        """Return the line of a run's header that lists the settings that are applied and those that are not."""
        if self.file is None:
            return []
        applied = {"white_list": self.white_list, "black_list": self.black_list}
        parts = [f"{key} {','.join(names)}" for key, names in applied.items() if names]
        parts += [f"error_data_path {self.error_data_path}"] if self.error_data_path is not None else []
        parts += [f"precision {self.precision}"] if self.precision is not None else []
        parts += [f"not used: {', '.join(self.unused)}"] if self.unused else []
        return [f"msprobe: {self.file}: {'; '.join(parts) or 'no settings'}"]


_key = pytest.StashKey[RunUt]()


def read_peer(config: pytest.Config, name: str, text: str) -> RunUt:
    """Read and keep what the file of an option asks for. Raises OptionError."""
    config.stash[_key] = read_run_ut(config.invocation_params.dir / text)
    return config.stash[_key]


def run_ut(config: pytest.Config) -> RunUt:
    """Return what the file asks for that the user named, nothing where none was."""
    return config.stash.get(_key, RunUt())


def read_run_ut(path: Path) -> RunUt:
    """Read the section of a file. Raises OptionError that names file, key and what is expected."""
    from msprobe_hooks.json_decoding import JsonError, decode_json
    from msprobe_hooks.messages import clipped
    from msprobe_hooks.regular_files import read_regular

    try:
        content = decode_json(read_regular(path))
    except OSError as error:
        raise OptionError(f"cannot be read ({error.strerror})", file=path) from None
    except JsonError as error:
        raise OptionError(f"not valid JSON ({error})", file=path) from None
    name = next((name for name in _SECTIONS if isinstance(content, dict) and name in content), None)
    if name is None:
        raise OptionError(f"no section {' or '.join(_SECTIONS)}; --msprobe-config needs one", file=path)
    section = content[name]
    if not isinstance(section, dict):
        raise _wrong(path, name, section, "an object")
    for key in section:
        if key not in _READERS and key not in _UNUSED:
            from pytest_msprobe.errors import not_one_of

            raise OptionError(f"{name}.{clipped(key)}: {not_one_of(key, _READERS)}", file=path)
    if section.get("is_online"):
        raise OptionError(f"{name}.is_online: true is not supported", file=path)
    values = {}
    for key in _READERS.keys() & section.keys():
        try:
            values[key] = _READERS[key](section[key])
        except ValueError as error:
            raise _wrong(path, f"{name}.{key}", section[key], str(error)) from None
    unused = tuple(key for key in section if key in _UNUSED and section[key] not in (None, *_UNUSED[key]))
    return RunUt(file=path, unused=unused, **values)


def _wrong(path: Path, key: str, value: object, expected: str) -> OptionError:
    from msprobe_hooks.messages import clipped

    return OptionError(f"{key} {clipped(repr(value))}: expected {expected}", file=path)


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ValueError("a list of names of APIs such as conv2d")
    return tuple(value)


def _folder(value: object) -> Path | None:
    if not isinstance(value, str):
        raise ValueError("the path of a folder")
    return None if value in _NO_PATH else Path(value)


def _digits(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 20:
        raise ValueError("a number of decimal places from 0 to 20")
    return value


_READERS: Mapping[str, Callable[[object], Any]] = {
    "white_list": _names,
    "black_list": _names,
    "error_data_path": _folder,
    "precision": _digits,
}
