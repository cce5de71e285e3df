"""Crafted outputs with the numbers and verdicts of mindstudio-probe 1.2.2; see tests/data/oracle/README.md."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

ORACLE = Path(__file__).parents[2] / "data" / "oracle"


@dataclass(frozen=True)
class OracleCase:
    """One crafted output, with what is right where the probe is not."""

    fields: Mapping[str, Any]
    target: torch.Tensor
    golden: torch.Tensor
    baseline: torch.Tensor
    corrections: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.fields['id']} ({self.fields['kind']})"


def oracle_cases(standard: str) -> list[OracleCase]:
    """Return the cases of a standard."""
    corrections: dict[str, dict[str, Any]] = {}
    for row in _read("peer_bugs"):
        corrections.setdefault(row["case"], {})[row["where"]] = row["right"]
    with np.load(ORACLE / "tensors.npz") as arrays:
        return [
            OracleCase(
                case,
                _tensor(arrays[f"{case['data']}_device"], case["dtype"]),
                torch.from_numpy(arrays[f"{case['data']}_bench"]),
                _tensor(arrays[f"{case['data']}_gpu"], case["dtype"]),
                corrections.get(case["id"], {}),
            )
            for case in _read(standard)
        ]


def _read(name: str) -> Any:
    with gzip.open(ORACLE / f"{name}.json.gz", "rt", encoding="utf-8") as file:
        return json.load(file)


def _tensor(values: np.ndarray, dtype: str) -> torch.Tensor:
    if dtype == "bfloat16":
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)
