"""Hyperparameters of launch scripts, command lines and YAML files, and spellings of one setting."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from msprobe_standards.decoding import YamlError, decode_yaml

_CONTINUED, _COMMENT = re.compile(r"\\\r?\n"), re.compile(r"(?:^|(?<=\s))#.*$", re.MULTILINE)
_ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:\[[@*]\])?(?::?-([^}]*))?\})")
_LAUNCHERS = frozenset({"torchrun", "msrun", "deepspeed", "accelerate"})
_PYTHON = re.compile(r"python[0-9.]*")
_PREFIXES = frozenset({"export", "declare", "local", "readonly", "set", "-a", "-x"})
_OPTION = re.compile(r"--?[A-Za-z_][\w.-]*(?:=.*)?", re.DOTALL)
# A choice: how deep variables may name variables; one that names itself ends here.
_MOST_EXPANSIONS = 8
_LONGEST = 1 << 20


def of_text(name: str, text: str) -> dict[str, Any]:
    """Return the hyperparameters of a launch script, or of YAML by its file name. Raises ValueError saying why not."""
    if PurePath(name.rstrip("'")).suffix == ".sh":
        return of_script(text)
    try:
        return flat(decode_yaml(text.encode()))
    except YamlError as error:
        raise ValueError(str(error)) from None


def of_script(text: str) -> dict[str, Any]:
    """Return the options of the line that launches the training, its variables and arrays put in.

    That is a line of torchrun, msrun, deepspeed, accelerate or ``python -m torch.distributed``, else of python. Raises
    ValueError for what is no shell script.
    """
    statements = list(_statements(text))
    variables: dict[str, list[str]] = {}
    for words in statements:
        variables.update(_assignments(words))
    launches = [words for words in statements if _launches(words)] or [words for words in statements if _runs(words)]
    found: dict[str, Any] = {}
    for words in launches:
        options, _ = options_of(_expanded(words, variables))
        merge(found, options)
    return found


def of_command_line(text: str) -> dict[str, Any]:
    """Return the options of a command line, and what is none as ``argument 0`` and on."""
    options, others = options_of(shlex.split(text))
    return {**options, **{f"argument {place}": word for place, word in enumerate(others)}}


def options_of(words: Iterable[str]) -> tuple[dict[str, Any], list[str]]:
    """Return options with their values, several joined by spaces and none as True, and the words that are neither."""
    options: dict[str, list[str]] = {}
    others: list[str] = []
    values = others
    for word in words:
        if _OPTION.fullmatch(word):
            name, has_value, value = word.lstrip("-").partition("=")
            options[name] = [value] if has_value else []
            values = others if has_value else options[name]
        elif word.endswith(".py"):
            others.append(word)
            values = others
        else:
            values.append(word)
    return {name: " ".join(found) if found else True for name, found in options.items()}, others


def flat(tree: Any, path: str = "") -> dict[str, Any]:
    """Return nested settings under dotted names; a list of plain values is one value."""
    if isinstance(tree, Mapping):
        parts: Iterable[tuple[Any, Any]] = tree.items()
    elif isinstance(tree, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in tree):
        parts = enumerate(tree)
    else:
        return {path: as_value(tree)} if path else {}
    found: dict[str, Any] = {}
    for key, value in parts:
        found |= flat(value, f"{path}.{key}" if path else str(key))
    return found


def as_value(value: Any) -> Any:
    """Return a setting as the value of a fact: None is a value in words, for no value is no setting."""
    return "None" if value is None else value


def merge(found: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add settings of another place; what has several values gets all of them, as a text."""
    for name, value in more.items():
        known = found.get(name, value)
        found[name] = known if known == value or _is_repeated(known, value) else f"{known}; {value}"


def _statements(text: str) -> Iterator[list[str]]:
    """Yield the words of each command, without what is redirected; an array's are between ``(`` and ``)``."""
    text = _COMMENT.sub("", _CONTINUED.sub(" ", text))
    lexer = shlex.shlex(text, posix=True, punctuation_chars="();&|<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    in_array = is_redirected = False
    for word in lexer:
        if word and not set(word) - set("();&|<>\n"):
            if "(" in word and words and words[-1].endswith("="):
                in_array = True
            if in_array:
                words += [each for each in word if each in "()"]
                in_array = ")" not in word
                continue
            is_redirected = set(word) <= set("<>&") and bool(set(word) & set("<>"))
            if not is_redirected:
                yield words
                words = []
        elif not is_redirected:
            words.append(word)
    yield words


def _assignments(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the variables that a command sets before it runs anything, with their words."""
    left = iter(words)
    for word in left:
        match = _ASSIGNMENT.fullmatch(word)
        if match:
            yield match[1], [match[2]] if match[2] else list(_array(left))
        elif word not in _PREFIXES:
            return


def _array(left: Iterator[str]) -> Iterator[str]:
    if next(left, ")") == "(":
        for word in left:
            if word == ")":
                return
            yield word


def _launches(words: Sequence[str]) -> bool:
    names = [PurePath(word).name for word in words]
    return bool(_LAUNCHERS.intersection(names)) or (
        "-m" in words and any("torch.distributed" in word for word in words)
    )


def _runs(words: Sequence[str]) -> bool:
    return any(_PYTHON.fullmatch(PurePath(word).name) for word in words)


def _expanded(words: Iterable[str], variables: Mapping[str, Sequence[str]]) -> list[str]:
    """Return words with variables for their values, as often as there are values; unknown ones stay.

    Raises ValueError where that grows beyond what a script can mean.
    """
    found = list(words)
    for _ in range(_MOST_EXPANSIONS + 1):
        before, found = found, _expanded_once(found, variables)
        if found == before:
            break
    return found


def _expanded_once(words: Iterable[str], variables: Mapping[str, Sequence[str]]) -> list[str]:
    size = 0

    def value(match: re.Match[str]) -> str:
        nonlocal size
        name = match[1] or match[2]
        text = " ".join(variables[name]) if name in variables else match[3] or match[0]
        size += len(text)
        if size > _LONGEST:
            raise ValueError("its variables expand to more than 1 MiB of text")
        return text

    found: list[str] = []
    for word in words:
        text = _VARIABLE.sub(value, word)
        found += [word] if text == word else text.split()
    return found


def is_same(one: Any, other: Any) -> bool:
    """Return whether two settings are the same, however they are spelled: 1e-4 is 0.0001, true is True."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(_canonical(one) == _canonical(other))


def _canonical(value: Any) -> Any:
    text = str(value).strip()
    if "_" in text:
        # A name, though Python reads 1_0 as a number.
        return text
    try:
        number = float(text)
    except ValueError:
        return text.lower() if text.lower() in ("true", "false", "none", "null") else text
    # Large integers are more exact than floats; not a number is equal to itself here.
    return text if text.lstrip("+-").isdecimal() or math.isnan(number) else _as_integer(number)


def _as_integer(number: float) -> str | float:
    return str(int(number)) if number.is_integer() else number


def _is_repeated(text: Any, value: Any) -> bool:
    """Return whether a word of a command line, or several joined by spaces, is a value that a program made of it."""
    if isinstance(value, (list, tuple)) and isinstance(text, str):
        return is_same(text.split(), list(value))
    return is_same(text, value)
