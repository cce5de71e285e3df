"""The weights and batches that both frameworks' networks are made of, and what is changed in the one that is wrong."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
#: What is planted: another epsilon, one element of a weight, another activation, a bias that is not there.
Fault: TypeAlias = Literal["", "eps", "weight", "activation", "bias"]

WIDTH, WORDS, CLASSES, BATCH, LENGTH = 16, 20, 10, 2, 6

_SHAPES = {
    "up.weight": (32, WIDTH), "up.bias": (32,), "down.weight": (WIDTH, 32), "down.bias": (WIDTH,),
    "head.weight": (CLASSES, WIDTH), "head.bias": (CLASSES,),
    "q.weight": (WIDTH, WIDTH), "k.weight": (WIDTH, WIDTH), "v.weight": (WIDTH, WIDTH), "o.weight": (WIDTH, WIDTH),
    "q.bias": (WIDTH,), "k.bias": (WIDTH,), "v.bias": (WIDTH,), "o.bias": (WIDTH,),
    "norm.weight": (WIDTH,), "norm.bias": (WIDTH,), "words.weight": (WORDS, WIDTH), "places.weight": (LENGTH, WIDTH),
    "conv1.weight": (4, 1, 3, 3), "conv2.weight": (8, 4, 3, 3), "conv2.bias": (8,),
    "bn.weight": (8,), "bn.bias": (8,), "classify.weight": (CLASSES, 72), "classify.bias": (CLASSES,),
    "lstm.weight_ih_l0": (4 * WIDTH, WIDTH), "lstm.weight_hh_l0": (4 * WIDTH, WIDTH),
    "lstm.bias_ih_l0": (4 * WIDTH,), "lstm.bias_hh_l0": (4 * WIDTH,),
}  # fmt: skip
_random = np.random.default_rng(5)


def _drawn(*shape: int, scale: float = 0.3) -> Array:
    return (_random.normal(size=shape) * scale).astype(np.float32)


WEIGHTS = {name: _drawn(*shape) for name, shape in _SHAPES.items()}
for name in ("norm.weight", "bn.weight"):
    WEIGHTS[name] += np.float32(1)
ROWS = _drawn(12, WIDTH, scale=1.0)
SEQUENCES = _drawn(BATCH, LENGTH, WIDTH, scale=1.0)
IMAGES = _drawn(3, 1, 20, 20, scale=1.0)
WANTED = _drawn(12, CLASSES, scale=1.0)
FUTURE = np.triu(np.ones((LENGTH, LENGTH), bool), 1)
IDS = _random.integers(0, WORDS, (BATCH, LENGTH))
ROW_CLASSES, IMAGE_CLASSES = _random.integers(0, CLASSES, (12,)), _random.integers(0, CLASSES, (3,))


def weight(name: str, fault: Fault = "") -> Array:
    """Return a weight; of the second layer of a network, the fault ``weight`` changes one element."""
    values = WEIGHTS[name].copy()
    if fault == "weight" and name in ("down.weight", "conv2.weight", "o.weight", "lstm.weight_ih_l0"):
        values.reshape(-1)[5] += 0.5
    return values


def epsilon(fault: Fault) -> float:
    """Return what normalisations add to a variance."""
    return 1e-3 if fault == "eps" else 1e-5


def has_bias(name: str, fault: Fault) -> bool:
    """Tell whether a layer has a bias."""
    return f"{name}.bias" in WEIGHTS and not (fault == "bias" and name in ("down", "conv2", "o"))
