"""Records made on the spot: tensors that hold inf or not, calls, communication, dumps of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from msprobe_hooks.dump.communication.jsonl import Step
from msprobe_hooks.dump.reader import Dump
from tests.support.dumps import dump_files as dumps
from tests.support.dumps.dump_files import Json


def tensor(*, bad: bool = False, norm: float | None = 1.0, **fields: Any) -> Json:
    """Return the element of a tensor with two elements, one of them infinite if it is ``bad``."""
    high = "Infinity" if bad else 1.0
    return dumps.tensor(2, high=high, **({"Mean": 0.0, "Norm": "Infinity" if bad else norm} | fields))


def call(inputs: list[Any], outputs: list[Any], **kwargs: Any) -> Json:
    """Return the body of a forward record."""
    return dumps.forward(*inputs, output=outputs, **kwargs)


def group(*ranks: int) -> Json:
    """Return the element of a process group."""
    return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": "0"}


def dump(records: Json, folder: str | Path = "rank0") -> Dump:
    """Return a dump that is nowhere written."""
    raw = {name: msgspec.Raw(msgspec.json.encode(body)) for name, body in records.items()}
    return Dump(Path(folder) / "dump.json", "statistics", "L1", "pytorch", raw)


def step(*ranks: Json) -> Step:
    """Return a step whose ranks 0, 1 ... recorded these."""
    return Step(Path("step0"), {i: dump(records, f"step0/rank{i}") for i, records in enumerate(ranks)})
