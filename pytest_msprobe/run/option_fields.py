"""Options as fields: what pytest's parser, the rerun command and the journal need to know of each.

The options of a mode, or of one subject, are one frozen dataclass. Each of its fields is an `option` of the command
line or a `setting` of the ini file, which ``-o msprobe_x=y`` sets for one run; no value is both. Every run with
something of this plugin loads the modules that have such classes: they import the standard library, pytest and modules
like this one alone, and what reads a value imports the rest when it is called.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest

from pytest_msprobe.errors import OptionError, no_effect, unknown_value
from pytest_msprobe.run.option_data import Row

T = TypeVar("T")

#: What turns the text of an option, given its name, into its value. Raises OptionError where it cannot.
Reader = Callable[[pytest.Config, str, str], Any]
IniType = Literal["string", "bool", "int", "float", "args", "linelist", "paths"]

_KEY = "msprobe"


@dataclass(frozen=True, slots=True)
class Declared:
    """Declaration of one field; ``name`` begins with ``--`` for an option, and is a key of the ini file if not.

    ``repeat`` makes the value a tuple. ``rerun`` says that the command that runs an item again has it, and ``journal``
    that runs which share a journal must agree in it.
    """

    name: str
    help: str
    metavar: str | None
    read: Reader
    repeat: bool
    rerun: bool
    journal: bool
    group: str | None
    kind: IniType

    @property
    def is_setting(self) -> bool:
        """Return whether the ini file has it, and not the command line."""
        return not self.name.startswith("--")

    @property
    def is_shared(self) -> bool:
        """Return whether it is an option of several modes, which none of them adds."""
        return not self.help

    @property
    def destination(self) -> str:
        """The name under which pytest keeps the value."""
        return self.name.removeprefix("--").replace("-", "_")


def as_text(config: pytest.Config, name: str, text: str) -> str:
    """Return the text itself."""
    return text


def option(
    name: str,
    meaning: str,
    *,
    metavar: str | None = None,
    read: Reader = as_text,
    default: Any = None,
    repeat: bool = False,
    rerun: bool = True,
    journal: bool = True,
    group: str | None = None,
) -> Any:
    """Return a field for an option: a flag where it has no ``metavar``, else one that ``read`` turns into a value.

    ``group`` is the job of `run.option_data` whose part of the help has it, that of its class by default.
    """
    kind: IniType = "bool" if metavar is None else "string"
    declared = Declared(name, meaning, metavar, read, repeat, rerun, journal, group, kind)
    default = False if metavar is None else default
    return field(default=() if repeat and default is None else default, metadata={_KEY: declared})


def setting(
    name: str,
    meaning: str,
    *,
    kind: IniType = "string",
    read: Reader = as_text,
    default: Any = None,
    rerun: bool = True,
    journal: bool = True,
) -> Any:
    """Return a field for a key of the ini file; several words, lines or paths become a tuple."""
    repeat = kind in ("args", "linelist", "paths")
    default = () if repeat else False if kind == "bool" and default is None else default
    declared = Declared(name, meaning, "", read, repeat, rerun, journal, None, kind)
    return field(default=default, metadata={_KEY: declared})


def shared(name: str, *, read: Reader = as_text, repeat: bool = False, rerun: bool = True, journal: bool = True) -> Any:
    """Return a field for an option of `run.shared_options`, which is added there and read here."""
    declared = Declared(name, "", "", read, repeat, rerun, journal, None, "string")
    return field(default=() if repeat else None, metadata={_KEY: declared})


def declared_fields(options: Any) -> Iterator[tuple[Field[Any], Declared]]:
    """Yield the declared fields of a class of options, or of an instance."""
    for option_field in fields(options):
        if _KEY in option_field.metadata:
            yield option_field, option_field.metadata[_KEY]


def rows(options: type[Any], group: str = "") -> list[Row]:
    """Return what pytest's parser needs of what a class declares; options are in a group unless they name another."""
    declarations = declared_fields(options)
    return [_row(declared, group, attribute.default) for attribute, declared in declarations if not declared.is_shared]


def _row(declared: Declared, group: str, default: Any) -> Row:
    row: dict[str, Any] = {"name": declared.name, "help": declared.help}
    if declared.is_setting:
        row |= {} if declared.kind == "string" else {"kind": declared.kind}
        # Of any other value pytest says whether it is set.
        return row | ({"default": True} if declared.kind == "bool" and default else {})
    group = declared.group or group
    row |= {"group": group} if group else {}
    row |= {} if declared.metavar is None else {"metavar": declared.metavar}
    return row | ({"repeat": True} if declared.repeat else {})


def read_fields(config: pytest.Config, options: type[T], **others: Any) -> T:
    """Read and check what a class declares; ``others`` are its fields that are not declared. Raises OptionError."""
    values = {
        option_field.name: _read(config, option_field, declared) for option_field, declared in declared_fields(options)
    }
    return options(**values, **others)


def read_field(config: pytest.Config, options: type[Any], name: str) -> Any:
    """Read and check one field. Raises OptionError."""
    return next(
        _read(config, option_field, declared)
        for option_field, declared in declared_fields(options)
        if option_field.name == name
    )


def _read(config: pytest.Config, option_field: Field[Any], declared: Declared) -> Any:
    raw = _ini(config, declared) if declared.is_setting else config.getoption(declared.destination)
    if declared.repeat:
        return tuple(declared.read(config, declared.name, text) for text in raw or ())
    if raw in (None, "", []):
        return option_field.default
    if declared.kind == "bool":
        return bool(raw)
    return declared.read(config, declared.name, f"{raw:g}" if isinstance(raw, float) else str(raw))


def _ini(config: pytest.Config, declared: Declared) -> Any:
    try:
        return config.getini(declared.name)
    except (TypeError, ValueError, pytest.UsageError) as error:
        # Whichever way pytest failed to read the value, its text ends with it.
        value = str(error).rpartition(": ")[2].removeprefix("invalid truth value ")
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}.get(declared.kind, "a text")
        if declared.kind in ("int", "float"):
            # The reader says what it expects.
            declared.read(config, declared.name, value.strip("'\""))
        raise OptionError(f"{declared.name} {value}: expected {expected}") from None


def is_passed(config: pytest.Config, name: str) -> bool:
    """Return whether the command line has an option, or a key of the ini file after ``-o``."""
    if not name.startswith("--"):
        return any(text.startswith(f"{name}=") for text in config.option.override_ini or ())
    return config.getoption(name.removeprefix("--").replace("-", "_")) not in (None, False, [], "")


def refuse_without(config: pytest.Config, options: type[Any], needed: str) -> None:
    """Raise OptionError where an option of a class is passed without the one that it belongs to.

    Shared ones may belong to others. What the ini file itself says waits for a run that it applies to.
    """
    for _, declared in declared_fields(options):
        if not declared.is_shared and is_passed(config, declared.name):
            raise no_effect(declared.name, needed)


def words(options: Any) -> list[str]:
    """Return the command-line words that ask for the same, for the command that runs an item again."""
    words_of_options: list[str] = []
    for option_field, declared in declared_fields(options):
        value = getattr(options, option_field.name)
        if not declared.rerun or value == option_field.default:
            continue
        if declared.is_setting:
            words_of_options += ["-o", f"{declared.name}={_ini_text(value)}"]
        elif declared.kind == "bool":
            words_of_options += [declared.name]
        else:
            values = value if declared.repeat else (value,)
            words_of_options += [word for part in values for word in (declared.name, _text(part))]
    return words_of_options


def settings(options: Any) -> dict[str, str]:
    """Return what two runs must share for one to go on with the other's journal; files count by what they hold."""
    return {
        declared.destination.removeprefix("msprobe_"): _journal_text(getattr(options, option_field.name))
        for option_field, declared in declared_fields(options)
        if declared.journal
    }


def _journal_text(value: object) -> str:
    if isinstance(value, tuple):
        return " ".join(map(_journal_text, value)) or "none"
    if isinstance(value, Path) and value.is_file():
        from pytest_msprobe.storage.files import fingerprint

        return fingerprint(value)
    return "none" if value is None else _text(value)


def _ini_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return shlex.join(map(_text, value)) if isinstance(value, tuple) else _text(value)


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def base_folder(config: pytest.Config, name: str) -> Path:
    """Return the folder that a path is relative to: the ini file's for its keys, else the command line's."""
    if name.startswith("--") or is_passed(config, name) or config.inipath is None:
        return config.invocation_params.dir
    return config.inipath.parent


def as_path(config: pytest.Config, name: str, text: str) -> Path:
    """Return a path, whether there is something or not."""
    return base_folder(config, name) / text


def existing(config: pytest.Config, name: str, text: str) -> Path:
    """Return the path of a file or folder that is there."""
    path = as_path(config, name, text)
    if not path.exists():
        raise OptionError(f"{name} {text!r}: no such file or directory")
    return path


def existing_file(config: pytest.Config, name: str, text: str) -> Path:
    """Return the path of a file that is there."""
    path = as_path(config, name, text)
    if not path.is_file():
        raise OptionError(f"{name} {text!r}: no such file")
    return path


def output_file(config: pytest.Config, name: str, text: str) -> Path:
    """Return the path of a file to write."""
    path = as_path(config, name, text)
    if path.is_dir():
        raise OptionError(f"{name} {text!r}: a directory", remedy="pass the name of a file")
    return path


def output_folder(config: pytest.Config, name: str, text: str) -> Path:
    """Return the path of a folder to write to."""
    path = as_path(config, name, text)
    if path.exists() and not path.is_dir():
        raise OptionError(f"{name} {text!r}: not a directory")
    return path


def one_of(*allowed: str) -> Reader:
    """Return a reader of one of a few values."""

    def read(config: pytest.Config, name: str, text: str) -> str:
        if text not in allowed:
            raise unknown_value(name, text, allowed)
        return text

    return read


def number(kind: Callable[[str], float], expected: str, valid: Callable[[float], bool] = lambda value: True) -> Reader:
    """Return a reader of numbers, which reports what is ``expected`` where a text is none or not ``valid``."""

    def read(config: pytest.Config, name: str, text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not valid(value):
            raise OptionError(f"{name} {text!r}: expected {expected}")
        return value

    return read


def by(module: str, function: str) -> Reader:
    """Return the reader of a module that is loaded when there is something to read."""
    return lambda config, name, text: getattr(import_module(module), function)(config, name, text)
