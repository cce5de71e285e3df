"""The canonical name of a module or parameter, in whichever framework's spelling it comes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from pytest_msprobe.extensions.model_names.canonical import Canonical, Part
from pytest_msprobe.extensions.model_names.patterns import Node, Patterns, read_patterns

_ARCHITECTURES = Path(__file__).parent / "architectures"
# Parameters of a linear layer whose rows are those of its weight.
_OF_ROWS = frozenset({"", "weight", "bias"})
# More digits than any layer or expert has.
_MOST_DIGITS = 6


class ModelNames:
    """Canonical names by the files that ship for Llama, Qwen, DeepSeek and GLM, and by those of the user."""

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._known: dict[str, Canonical] = {}

    def canonical(self, name: str) -> Canonical:
        """Return what a module (``decoder.layers.0.mlp``) or parameter (``... .weight``) is; an unknown one is itself.

        What follows the longest name that is known, as in ``layers.0.mlp.down_proj.weight``, is kept.
        """
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._find(name)
        return known

    def _find(self, name: str) -> Canonical:
        components = [each for each in name.split(".") if each not in self._patterns.wrappers] or [name]
        first = 0
        while True:
            found = _longest(self._patterns.root, components[first:])
            if found is not None or first + 1 >= len(components) or components[first] not in self._patterns.prefixes:
                break
            first += 1
        components = components[first:]
        if found is None:
            whole = ".".join(components)
            return Canonical(whole, (Part(whole),), layer=_layer(components))
        meaning, numbers, length = found
        rest = ".".join(components[length:])
        return self._understood(meaning, numbers, rest)

    def _understood(self, meaning: str, numbers: Mapping[str, str], rest: str) -> Canonical:
        whole = _filled(meaning, numbers, rest)
        layer = int(numbers["layer"]) if "layer" in numbers else None
        expert = int(numbers["expert"]) if "expert" in numbers else None
        sharded = self._patterns.sharded.get(meaning)
        if sharded is None and rest == "":
            sharded = self._patterns.sharded.get(meaning.rpartition(".")[0])
        if sharded == 1 and (rest == "bias" or whole.endswith(".bias")):
            sharded = None
        fused = self._patterns.fused.get(meaning)
        if fused is None or rest not in _OF_ROWS:
            return Canonical(whole, (Part(whole),), "whole", sharded, layer, expert, is_known=True)
        parts = tuple(Part(_filled(part.name, numbers, rest), part.rows) for part in fused.parts)
        return Canonical(whole, parts, fused.arrangement, sharded, layer, expert, is_known=True)


@cache
def model_names(files: tuple[Path, ...] = ()) -> ModelNames:
    """Return the names of the files that ship and of the user's. Raises OptionError that names file and line."""
    return read_model_names(files)


def read_model_names(files: Iterable[Path] = ()) -> ModelNames:
    """Read the files that ship and then the user's, which overrule them. Raises OptionError."""
    patterns = Patterns()
    for path in (*sorted(_ARCHITECTURES.glob("*.yaml")), *files):
        read_patterns(path, patterns)
    return ModelNames(patterns)


def _longest(root: Node, components: list[str]) -> tuple[str, dict[str, str], int] | None:
    """Return the meaning of the longest known beginning of a name, its numbers and its length in components."""
    node, numbers, found = root, dict[str, str](), None
    for length, component in enumerate(components, 1):
        following = node.named.get(component)
        if following is None:
            head = component.rstrip("0123456789")
            number = component[len(head) :]
            known = node.numbered.get(head) if 0 < len(number) <= _MOST_DIGITS else None
            if known is None:
                break
            placeholder, following = known
            numbers[placeholder] = str(int(number))
        node = following
        if node.meaning:
            found = node.meaning, dict(numbers), length
    return found


def _filled(pattern: str, numbers: Mapping[str, str], rest: str) -> str:
    for placeholder, number in numbers.items():
        pattern = pattern.replace(f"{{{placeholder}}}", number)
    return f"{pattern}.{rest}" if rest else pattern


def _layer(components: list[str]) -> int | None:
    return next((int(number) for name, number in pairwise(components) if name == "layers" and number.isdecimal()), None)
