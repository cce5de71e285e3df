"""Which values are compared, in the order of the forward pass, and which block of the model each is in."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_msprobe.modes.compare.inference.run_values import INPUT, LOGITS, ROTATED, RunValues

ATTENTION_NORM = "input_layernorm"
_ATTENTION = "self_attn"


def compared_names(target: RunValues, golden: RunValues) -> list[str]:
    """Return the values that both runs recorded, in the order in which the golden run computed them."""
    names = list(dict.fromkeys(_ordered(golden)))
    shared = [name for name in names if target.has(name)]
    last = [name for name in shared if name.startswith(LOGITS)]
    return [*(name for name in shared if not name.startswith(LOGITS)), *last]


def _ordered(golden: RunValues) -> Iterator[str]:
    for name in golden.sources:
        if name.endswith(f"{_ATTENTION}.o_proj{INPUT}"):
            attention = name.removesuffix(f".o_proj{INPUT}")
            yield from (attention + tail for tail in ROTATED if golden.has(attention + tail))
        yield name


def block_of(name: str) -> int:
    """Return the number of the block that a value is in.

    The embedding is 0; each layer has one of attention and one of the MLP; norm and head behind them are the last.
    """
    words = name.split(".")
    if words[0] == "layers" and len(words) > 1 and words[1].isdecimal():
        rest = words[2:]
        is_attention = bool(rest) and rest[0] in (_ATTENTION, ATTENTION_NORM)
        return 2 * int(words[1]) + (1 if is_attention else 2)
    return LAST if words[0] in ("norm", LOGITS) else 0


#: The block of what follows the layers, however many there are.
LAST = 2**20


def depths(names: list[str]) -> dict[str, int]:
    """Return behind how many blocks each value is."""
    blocks = {name: block_of(name) for name in names}
    layers = max((block for block in blocks.values() if block != LAST), default=0)
    return {name: min(block, layers + 1) for name, block in blocks.items()}
