"""Messages on overflow, with the call site of a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from msprobe_hooks.dump.call_context import Surroundings, modules_around, relevant_frames
from msprobe_hooks.dump.paths.recording import STACK_FILE
from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.extensions.overflow.anomalies.anomaly import Finding, ValuePath, is_numeric


@dataclass(frozen=True, slots=True)
class Origin:
    """Place where a record was made: stack frames from the innermost out, modules from the outermost in.

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


_FRAMES_SHOWN = 3
_PLACES_SHOWN = 8


def describe_values(place: ValuePath) -> str:
    """Return what is known of a value: ``Max inf, Min -2.5``."""
    leaf = place.leaf
    if not isinstance(leaf, TensorElement):
        return f"{leaf.type} {leaf.value}"
    statistics = (
        {"Max": leaf.max, "Min": leaf.min} if leaf.max is not None or leaf.min is not None else {"Mean": leaf.mean}
    )
    return (
        ", ".join(f"{name} {number:.6g}" for name, number in statistics.items() if number is not None)
        or "no statistics"
    )


def describe_place(place: ValuePath) -> str:
    """Return one value with its path, dtype, shape and extrema."""
    leaf = place.leaf
    kind = f" {leaf.dtype} {leaf.shape}" if isinstance(leaf, TensorElement) else ""
    return f"{place.path}{kind}: {describe_values(place)}"


def describe_finding(finding: Finding) -> str:
    """Return level and scene in one line."""
    return f"{finding.scene.level}: {finding.scene.words}{growth_words(finding)}"


def growth_words(finding: Finding) -> str:
    """Return how much a norm grew, where that is what was found."""
    return f" ({finding.growth:.4g} times)" if finding.growth is not None else ""


def place_lines(places: Iterable[ValuePath]) -> Iterator[str]:
    """Yield a line for each tensor and each number, up to as many as one can read."""
    lines = [describe_place(place) for place in places if is_numeric(place.leaf)]
    yield from lines[:_PLACES_SHOWN]
    if len(lines) > _PLACES_SHOWN:
        yield f"and {len(lines) - _PLACES_SHOWN} more"


def origin_lines(origin: Origin) -> Iterator[str]:
    """Yield where a record was made: modules, then the innermost frames, then what is not known."""
    if origin.modules:
        yield f"in {' > '.join(origin.modules)}"
    shown = relevant_frames(origin.frames, _FRAMES_SHOWN)
    for frame in shown:
        yield f"called at {' '.join(frame.removeprefix('File ').split())}"
    if len(origin.frames) > len(shown):
        yield f"and {len(origin.frames) - len(shown)} more frames in stack.json"
    for problem in origin.problems:
        yield f"({problem})"
