"""Records made on the spot: tensors that hold inf or not, calls, communication, dumps of ranks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from msprobe_hooks.dump.ranks import Step
from msprobe_hooks.dump.reader import Dump
from pytest_msprobe.modes.overflow.culprits import Analysis, analyse
from pytest_msprobe.modes.overflow.ignore import load_rules

Json = dict[str, Any]


def tensor(*, bad: bool = False, norm: float | None = 1.0, **fields: Any) -> Json:
    high = "Infinity" if bad else 1.0
    statistics = {"Max": high, "Min": -1.0, "Mean": 0.0, "Norm": "Infinity" if bad else norm}
    return {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], **statistics, **fields}


def value(number: Any) -> Json:
    return {"type": type(number).__name__, "value": number}


def call(inputs: list[Any], outputs: list[Any], **kwargs: Any) -> Json:
    return {"input_args": inputs, "input_kwargs": kwargs, "output": outputs}


def group(*ranks: int) -> Json:
    return {"type": "torch.ProcessGroup", "group_ranks": list(ranks), "group_id": "0"}


def dump(records: Json, folder: str | Path = "rank0") -> Dump:
    raw = {name: msgspec.Raw(msgspec.json.encode(body)) for name, body in records.items()}
    return Dump(Path(folder) / "dump.json", "statistics", "L1", "pytorch", raw)


def step(*ranks: Json) -> Step:
    return Step(Path("step0"), {i: dump(records, f"step0/rank{i}") for i, records in enumerate(ranks)})


def first_culprits(analysis: Analysis) -> list[tuple[int, str]]:
    return [(culprit.rank, culprit.name) for culprit in analysis.culprits]


@pytest.fixture(scope="session")
def search() -> Callable[..., Analysis]:
    """Analyse the records of ranks 0, 1 ... with the built-in rules."""
    rules = load_rules()
    return lambda *ranks: analyse(step(*ranks), rules)
