"""Where in the program a record was made: its call stack and the modules around it, from the files next to a dump."""

from __future__ import annotations

from dataclasses import dataclass

from msprobe_hooks.dump.call_context import Surroundings, modules_around
from msprobe_hooks.dump.paths.recording import STACK_FILE


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record was made: stack frames from the innermost out, modules from the outermost in.

    ``problems`` says what of it is not known and why.
    """

    frames: tuple[str, ...]
    modules: tuple[str, ...]
    problems: tuple[str, ...]


def origin_of(surroundings: Surroundings, name: str) -> Origin:
    """Return where a record was made.

    Neither file is needed to judge a record, so a missing or a damaged one is noted and not an error.
    """
    stacks, parents = surroundings.stacks, surroundings.parents
    problems = [str(table.problem) for table in (stacks, parents) if table.problem is not None]
    if stacks.problem is None and name not in stacks.entries:
        problems.append(f"{STACK_FILE} does not hold {name}")
    modules = modules_around(name, parents.entries.get)
    return Origin(stacks.entries.get(name, ()), tuple(reversed(modules)), tuple(problems))
