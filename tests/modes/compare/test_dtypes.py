"""A dtype is the same whatever framework spells it: 8-bit floats lose an underscore in MindSpore's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msprobe_hooks.dump.names import float_dtype
from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.values import Value
from pytest_msprobe.modes.compare.matching.reordering import signature
from pytest_msprobe.modes.compare.measure.load import load
from pytest_msprobe.run.marks import of_record

VALUES = torch.tensor([0.5, -2.0])
SPELLINGS = [
    ("Float8E4M3FN", "torch.float8_e4m3fn"),
    ("Float8E5M2", "torch.float8_e5m2"),
    ("BFloat16", "torch.bfloat16"),
    ("Float32", "torch.float32"),
]
spelled_twice = pytest.mark.parametrize(("mindspore", "pytorch"), SPELLINGS)


@spelled_twice
def test_a_recorded_tensor_of_mindspore_is_read_in_its_dtype(tmp_path: Path, mindspore: str, pytorch: str) -> None:
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    # numpy knows neither bfloat16 nor 8-bit floats: they are written as float32.
    np.save(folder / "x.npy", VALUES.numpy())
    value = Value("x", "mindspore.Tensor", mindspore, (2,), data_name="x.npy")
    read = load(value, Dump(tmp_path / "dump.json", "tensor", "L1", "mindspore", {}))
    assert str(read.dtype) == pytorch
    assert torch.equal(read.float(), VALUES)


@spelled_twice
def test_two_spellings_of_one_dtype_are_no_difference(
    runs: Any, call: Any, tensor: Any, mindspore: str, pytorch: str
) -> None:
    ours, theirs = ({"Mint.add.0.forward": call(tensor(2, dtype=dtype))} for dtype in (mindspore, pytorch))
    compared = runs.pair(ours, theirs).compare("Mint.add.0.forward")
    assert [row.messages for row in compared.rows] == [(), ()]


@spelled_twice
def test_two_spellings_of_one_dtype_have_one_signature(
    runs: Any, call: Any, tensor: Any, mindspore: str, pytorch: str
) -> None:
    ours, theirs = ({"Mint.add.0.forward": call(tensor(2, dtype=dtype))} for dtype in (mindspore, pytorch))
    first, second = runs.dumps(ours, theirs)
    assert signature(first, "Mint.add.0.forward") == signature(second, "Mint.add.0.forward")


@spelled_twice
def test_two_spellings_of_one_dtype_give_one_mark(
    runs: Any, call: Any, tensor: Any, mindspore: str, pytorch: str
) -> None:
    ours, theirs = ({"Mint.add.0.forward": call(tensor(2, dtype=dtype))} for dtype in (mindspore, pytorch))
    first, second = runs.dumps(ours, theirs)
    assert of_record(first, "Mint.add.0.forward") == of_record(second, "Mint.add.0.forward")
    assert pytorch.removeprefix("torch.") in of_record(first, "Mint.add.0.forward")


@spelled_twice
def test_two_spellings_of_one_dtype_have_one_precision(mindspore: str, pytorch: str) -> None:
    assert float_dtype(mindspore) == float_dtype(pytorch) is not None
