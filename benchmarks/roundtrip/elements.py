"""Comparing recorded values, element by element; each difference becomes the name of a class."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

_STATISTICS = ("Max", "Min", "Mean", "Norm")
_EXTRA = frozenset({"stride", "memory_format", "Max_except_inf_nan", "Min_except_inf_nan"})
_LAST_NODE = "call backward output"


def compare_lists(peer: Any, ours: Any, where: str, version: str) -> Iterator[str]:
    """Yield the class of each difference between what two records hold under one key."""
    if isinstance(peer, list) and isinstance(ours, list):
        if len(peer) != len(ours):
            yield _of_place("length", where)
            return
        for one, other in zip(peer, ours, strict=True):
            yield from compare_lists(one, other, where, version)
    elif isinstance(peer, dict) and isinstance(ours, dict):
        if "shape" in peer and "shape" in ours:
            yield from _compare_tensors(peer, ours, where, version)
            return
        for key in peer.keys() | ours.keys():
            if key in peer and key in ours:
                yield from compare_lists(peer[key], ours[key], where, version)
            else:
                yield _of_place("keys", where)
    elif peer != ours:
        yield _of_place("value", where)


def _compare_tensors(peer: dict[str, Any], ours: dict[str, Any], where: str, version: str) -> Iterator[str]:
    for key in ("type", "dtype", "shape", "requires_grad"):
        if peer.get(key) != ours.get(key):
            yield _of_place(key, where)
            return
    if _place(peer) != _place(ours):
        yield f"unexplained: data_name in {where}"
    for key in (ours.keys() ^ peer.keys()) & _EXTRA:
        yield f"key {key}"
    differs = list(_compare_statistics(peer, ours, where))
    yield from differs
    if peer.get("md5") != ours.get("md5") and all(kind.startswith(("rounding", "no ")) for kind in differs):
        yield f"md5 of bfloat16 {version}" if peer["dtype"] == "torch.bfloat16" else f"md5 {version}"


def _place(tensor: dict[str, Any]) -> str:
    """Return the part of a file's name that tells the tensor's place in its record."""
    return str(tensor.get("data_name", "")).rpartition("ward.")[2]


def _compare_statistics(peer: dict[str, Any], ours: dict[str, Any], where: str) -> Iterator[str]:
    dtype = peer["dtype"].removeprefix("torch.")
    is_float = dtype in ("float32", "float64", "bfloat16", "float16")
    for key in _STATISTICS:
        one, other = peer.get(key), ours.get(key)
        if one == other:
            continue
        if one is None or other is None:
            yield f"no {key} of integers" if not is_float and one is None else f"unexplained: no {key} of {dtype}"
            continue
        scale = max(abs(one), abs(other)) if key in ("Max", "Min", "Norm") else abs(ours["Norm"] or 1.0)
        tolerance = {"bfloat16": 2**-7, "float16": 2**-10}.get(dtype, 2e-6) if key in ("Mean", "Norm") else 0.0
        if math.isclose(one, other, rel_tol=0.0, abs_tol=tolerance * scale):
            yield f"rounding of {key} in {dtype}"
        else:
            near = math.isclose(one, other, rel_tol=0.0, abs_tol=1e-4 * abs(ours["Norm"] or 0.0))
            yield "unexplained: close values" if near else _of_place("values", where)
            return


def _of_place(what: str, where: str) -> str:
    if where == _LAST_NODE:
        return "gradients of the last node"
    if what == "length" and where == "call backward input":
        return "gradients of the first output"
    if what in ("length", "value") and where.startswith("module backward"):
        return f"{where} {what}"
    if what == "values" and where == "module forward input_args":
        return "values of module forward input_args"
    return f"unexplained: {what}" if what == "values" else f"unexplained: {what} in {where}"
