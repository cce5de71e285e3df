"""What one rank was started with, as facts by section and name, in either format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msprobe_hooks.extensions.environment.environment import COMMAND_LINE
from msprobe_hooks.extensions.environment.start_file import RandomCalls, Started, TensorFact
from pytest_msprobe.extensions.environment import launch_scripts

#: A text, a number or a list of these; or what is known of a tensor.
Value: TypeAlias = Any

#: The sections, in the order in which what is wrong explains what comes later.
SECTIONS = (
    *("hyperparameters", "arguments", "variables", "packages", "switches", "seeds", "random", "batches", "weights"),
    "buffers",
)
STEPPED = frozenset({"batches", "weights", "buffers"})


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one rank; a section that was not recorded is absent.

    Of sections with steps, names begin with ``step<n>/``. ``random`` are calls by function, of those that were
    ``watched``. ``is_whole`` says that a section has all that there was: what msprobe packs has no buffers, digests or
    values other than tensors. ``problems`` are sentences.
    """

    rank: int
    sections: Mapping[str, Mapping[str, Value]]
    random: Mapping[str, list[RandomCalls]] | None = None
    watched: frozenset[str] = frozenset()
    is_whole: bool = True
    problems: list[str] = field(default_factory=list)

    @property
    def known(self) -> set[str]:
        """The sections that there are."""
        return {*self.sections, *(["random"] if self.random is not None else [])}


def facts_of(started: Started) -> Facts:
    """Return the facts of what our own line wrote."""
    problems = list(started.problems)
    sections: dict[str, Mapping[str, Value] | None] = {
        "variables": started.variables,
        "packages": started.packages,
        "switches": started.switches,
        "seeds": started.seeds,
        "batches": by_step(started.batches),
        "weights": by_step(started.weights),
        "buffers": by_step(started.buffers),
        **_settings(started, problems),
    }
    if started.world is not None and started.switches is not None:
        sections["switches"] = {**started.switches, "ranks": str(started.world)}
    known = {name: facts for name, facts in sections.items() if facts is not None}
    return Facts(started.rank, known, started.random, frozenset(started.watched), problems=problems)


def by_step(steps: Mapping[int, Mapping[str, Value]] | None) -> dict[str, Value] | None:
    """Return facts of several steps under names that begin with the step."""
    if steps is None:
        return None
    return {f"step{step}/{name}": value for step, facts in sorted(steps.items()) for name, value in facts.items()}


def tensors(facts: Mapping[str, Value]) -> Iterator[str]:
    """Yield the names of facts that are tensors."""
    return (name for name, value in facts.items() if isinstance(value, TensorFact))


def _settings(started: Started, problems: list[str]) -> dict[str, Mapping[str, Value] | None]:
    """Return what scripts and YAML files say, and what the command line and the script itself gave."""
    texts = dict(started.texts or {})
    line = texts.pop(COMMAND_LINE, None)
    files: dict[str, Value] = {}
    for name, text in texts.items():
        try:
            launch_scripts.merge(files, launch_scripts.of_text(name, text))
        except ValueError as error:
            problems.append(f"{name} cannot be read as settings: {error}")
    given = launch_scripts.of_command_line(line) if line is not None else {}
    if started.arguments is not None:
        settings = launch_scripts.flat(started.arguments)
        # The option --batch-size is the argument batch_size.
        spelled = {name: name.replace("-", "_") for name in given}
        given = {spelled[name] if spelled[name] in settings else name: value for name, value in given.items()}
        launch_scripts.merge(given, settings)
    has_given = line is not None or started.arguments is not None
    return {"hyperparameters": files if texts else None, "arguments": given if has_given else None}
