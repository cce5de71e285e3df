"""Which values are compared, in the order of the forward pass, and which block of the model each is in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pytest_msprobe.extensions.inference.passes import EMBEDDING
from pytest_msprobe.extensions.inference.run_values import INPUT, LOGITS, ROTATED, RunValues

ATTENTION_NORM = "input_layernorm"
_ATTENTION = "self_attn"
# The list that a module is in and its place there: the outermost list, as experts lie in a layer.
_ITEM = re.compile(r"((?:[^.\d][^.]*\.)+?)(\d{1,6})(?:\.|$)", re.ASCII)


def compared_names(target: RunValues, golden: RunValues) -> list[str]:
    """Return the values that both runs recorded, in the order in which the golden run computed them."""
    return [name for name in _last_logits(_ordered(golden)) if target.has(name)]


def _last_logits(names: Iterable[str]) -> list[str]:
    return sorted(dict.fromkeys(names), key=lambda name: name.startswith(LOGITS))


def _ordered(golden: RunValues) -> Iterator[str]:
    for name in golden.sources:
        if name.endswith(f"{_ATTENTION}.o_proj{INPUT}"):
            attention = name.removesuffix(f".o_proj{INPUT}")
            yield from (attention + tail for tail in ROTATED if golden.has(attention + tail))
        yield name


def block_numbers(golden: RunValues) -> dict[str, int]:
    """Return how many blocks of the model each value of a run is behind, in the order in which it computed them.

    A block is attention or MLP of an item of a list of modules: a layer, a block of a vision tower, a layer that
    predicts further tokens. What is in no list lies behind all that ended before it: what contains the layers ends
    after the last of them, as the norm and the head do. The embedding reads tokens alone.
    """
    numbers: dict[str, int] = {}
    before_list: dict[str, int] = {}
    latest = 0
    for name in _last_logits(_ordered(golden)):
        item = _ITEM.match(name)
        if item is None:
            begun = 1 if latest else 0
            numbers[name] = 0 if name.startswith(EMBEDDING) else latest + begun
            continue
        words = name[item.end() :].split(".")
        place = 2 * int(item[2]) + (1 if words[0] in (_ATTENTION, ATTENTION_NORM) else 2)
        numbers[name] = before_list.setdefault(item[1], latest) + place
        latest = max(latest, numbers[name])
    return numbers
