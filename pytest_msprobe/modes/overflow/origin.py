"""Where in the program a record was made: its call stack and the modules around it, from the files beside a dump."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

_MAX_DEPTH = 400


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was made: stack frames from the innermost out, modules from the outermost in.

    ``problems`` says what of it is not known and why.
    """

    frames: tuple[str, ...]
    modules: tuple[str, ...]
    problems: tuple[str, ...]


class Origins:
    """The ``stack.json`` and ``construct.json`` of one dump, each read when first asked for.

    Neither is needed to judge a record, so a missing or a damaged one is told and is no error.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def of(self, name: str) -> Origin:
        """Return where a record was made."""
        (stacks, stack_problem), (parents, construct_problem) = self._stacks, self._parents
        problems = [problem for problem in (stack_problem, construct_problem) if problem]
        if not stack_problem and name not in stacks:
            problems.append(f"stack.json does not have {name}")
        return Origin(stacks.get(name, ()), tuple(reversed(_ancestors(parents, name))), tuple(problems))

    @functools.cached_property
    def _stacks(self) -> tuple[Mapping[str, tuple[str, ...]], str]:
        content, problem = _read(self._folder / "stack.json")
        found: dict[str, tuple[str, ...]] = {}
        for key, value in content.items():
            match value:
                case [[*names], [*frames]]:
                    found |= dict.fromkeys(map(str, names), tuple(map(str, frames)))
                case [*frames] if all(isinstance(frame, str) for frame in frames):
                    found[key] = tuple(frames)
                case _:
                    problem = "stack.json: not of a form that msprobe writes"
        return found, problem

    @functools.cached_property
    def _parents(self) -> tuple[Mapping[str, str], str]:
        content, problem = _read(self._folder / "construct.json")
        found: dict[str, str] = {}
        for name, value in content.items():
            # Megatron's micro steps stand beside the parent.
            parent = value[0] if isinstance(value, list) and value else value
            if isinstance(parent, str):
                found[name] = parent
        return found, problem


def _ancestors(parents: Mapping[str, str], name: str) -> list[str]:
    found = dict[str, None]()
    while (parent := parents.get(name)) is not None and parent not in found and len(found) < _MAX_DEPTH:
        found[parent] = None
        name = parent
    return list(found)


def _read(path: Path) -> tuple[dict[str, Any], str]:
    """Return a JSON object and an empty text, or an empty object and what is wrong with the file."""
    try:
        content = msgspec.json.decode(path.read_bytes())
    except FileNotFoundError:
        return {}, f"no {path.name} beside the dump"
    except OSError as error:
        return {}, f"{path.name}: cannot be read: {error.strerror}"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return {}, f"{path.name}: not valid JSON: {error}"
    return (content, "") if isinstance(content, dict) else ({}, f"{path.name}: holds no object")
