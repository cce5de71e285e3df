from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
import torch

from msprobe_hooks.torch.elements import TorchElements, group_id
from msprobe_hooks.torch.statistics import measure


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Options:
    size: int
    tensor: torch.Tensor


def build():
    return TorchElements("Torch.api.0.forward", lambda tensor, entry: entry.fill(measure(tensor)), None)


def element(value, key=None):
    elements = build()
    found = elements.element(value, "input.0") if key is None else elements.mapping({key: value}, "kwargs")[key]
    return msgspec.json.decode(msgspec.json.encode(found)), elements.details


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, {"type": "bool", "value": True}),
        (3, {"type": "int", "value": 3}),
        (0.5, {"type": "float", "value": 0.5}),
        ("sum", {"type": "str", "value": "sum"}),
        (slice(1, None, 2), {"type": "slice", "value": [1, None, 2]}),
        (slice(torch.tensor(1), 3), {"type": "slice", "value": [1, 3, None]}),
        (..., {"type": "ellipsis", "value": "..."}),
        (torch.Size([2, 3]), {"type": "torch.Size", "value": [2, 3]}),
        (torch.channels_last, {"type": "torch.memory_format", "format": "channels_last"}),
        (np.float32(1.5), {"type": "float32", "value": 1.5}),
        (np.int64(7), {"type": "int64", "value": 7}),
        ([1, [2]], [{"type": "int", "value": 1}, [{"type": "int", "value": 2}]]),
        ({"a": 1}, {"a": {"type": "int", "value": 1}}),
    ],
)
def test_values_are_spelled_as_msprobe_spells_them(value, expected):
    assert element(value) == (expected, {})


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("dtype", torch.float16, {"type": "torch.dtype", "value": "torch.float16"}),
        ("device", torch.device("cpu"), {"type": "torch.device", "value": "cpu:None"}),
        ("device", torch.device("cuda", 1), {"type": "torch.device", "value": "cuda:1"}),
        ("device", "npu:0", {"type": "torch.device", "value": "npu:0"}),
    ],
)
def test_named_dtypes_and_devices_have_their_own_type(key, value, expected):
    assert element(value, key)[0] == expected


@pytest.mark.parametrize(
    ("value", "expected", "detail"),
    [
        ((1,), [{"type": "int", "value": 1}], {"container": "tuple"}),
        (torch.float16, {}, {"type": "torch.dtype", "value": "torch.float16"}),
        (torch.device("cpu"), {}, {"type": "torch.device", "value": "cpu"}),
        (torch.strided, None, {"type": "torch.layout", "value": "torch.strided"}),
        (1 - 2j, None, {"type": "complex", "value": [1.0, -2.0]}),
        ({3}, [{"type": "int", "value": 3}], {"container": "builtins.set"}),
        (len, None, {"type": "builtins.builtin_function_or_method"}),
    ],
)
def test_what_the_format_loses_goes_into_the_details(value, expected, detail):
    assert element(value) == (expected, {"input.0": detail})


def test_named_tuples_and_dataclasses_are_objects_with_their_class_next_to_them():
    found, details = element(Point(1, 2))
    assert found == {"x": {"type": "int", "value": 1}, "y": {"type": "int", "value": 2}}
    assert details["input.0"]["container"].endswith("Point")
    found, details = element(Options(3, torch.ones(2)))
    assert found["tensor"]["Max"] == 1.0
    assert details["input.0"]["container"].endswith("Options")


def test_a_tensor_has_its_fields_in_the_formats_order():
    found, _ = element(torch.tensor([1.0, 3.0], requires_grad=True).detach().requires_grad_())
    assert list(found.items()) == [
        ("type", "torch.Tensor"),
        ("dtype", "torch.float32"),
        ("shape", [2]),
        ("Max", 3.0),
        ("Min", 1.0),
        ("Mean", 2.0),
        ("Norm", pytest.approx(10**0.5)),
        ("requires_grad", True),
    ]


def test_memory_formats_and_strides_are_kept():
    image = torch.ones(1, 3, 4, 4).to(memory_format=torch.channels_last)
    assert element(image)[0]["memory_format"] == "channels_last"
    assert element(torch.ones(2, 3).t())[0]["stride"] == [1, 3]
    assert "stride" not in element(torch.ones(2, 3))[0]


def test_arrays_have_statistics():
    found, _ = element(np.array([[3, 4]], dtype=np.int64))
    assert (found["type"], found["dtype"], found["shape"]) == ("numpy.ndarray", "int64", [1, 2])
    assert (found["Max"], found["Min"], found["Mean"], found["Norm"]) == (4, 3, 3.5, 5.0)


def test_values_nested_too_deep_are_cut_with_a_note():
    value = []
    for _ in range(500):
        value = [value]
    elements = build()
    elements.element(value, "input.0")
    assert {"nested_deeper_than": 100} in elements.details.values()


def test_a_process_group_is_named_by_the_crc_of_its_ranks():
    # zlib.crc32(b"[0, 1]")
    import zlib

    assert group_id([0, 1]) == f"{zlib.crc32(b'[0, 1]'):08x}"
