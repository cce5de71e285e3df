from __future__ import annotations

from math import inf, nan
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.memory_layouts import Layout
from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import BackwardRecord, ForwardRecord, MappingElement, TensorElement, ValueElement
from pytest_msprobe import recorded
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.extensions.generate.call_source import TorchLanguage, spell_call
from pytest_msprobe.extensions.generate.source_format import flat

RECORD = "Functional.softmax.0.forward"

finite = st.floats() | st.booleans() | st.integers()
tensors = st.builds(
    TensorElement,
    type=st.sampled_from(["torch.Tensor", "numpy.ndarray"]),
    dtype=st.sampled_from(["torch.float32", "torch.bfloat16", "torch.int64", "torch.bool", "torch.float8_e5m2"]),
    shape=st.lists(st.integers(0, 9), max_size=4).map(tuple),
    max=st.none() | finite,
    min=st.none() | finite,
    mean=st.none() | finite,
    norm=st.none() | finite,
    finite_max=st.none() | finite,
    finite_min=st.none() | finite,
    requires_grad=st.booleans(),
    layout=st.none()
    | st.builds(
        Layout,
        stride=st.lists(st.integers(0, 9), max_size=4).map(tuple),
        storage_offset=st.integers(0, 9),
        storage_size=st.none() | st.integers(1, 9),
        storage=st.none() | st.integers(0, 3),
        is_conj=st.booleans(),
        is_neg=st.booleans(),
    ),
)
ends = st.none() | st.integers()
plain = st.recursive(
    st.none() | finite | st.text(), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner)
)
plain_values = st.one_of(
    (finite | st.text()).map(lambda value: ValueElement(type(value).__name__, value)),
    st.tuples(ends, ends, ends).map(lambda parts: ValueElement("slice", list(parts))),
    st.just(ValueElement("ellipsis", "...")),
    st.lists(st.integers(0, 2**40)).map(lambda sizes: ValueElement("torch.Size", sizes)),
    st.sampled_from(["torch.float16", "torch.int8"]).map(lambda name: ValueElement("torch.dtype", name)),
    st.just(ValueElement("torch.memory_format", "torch.channels_last")),
    st.just(ValueElement("torch.layout", "torch.strided")),
    st.tuples(st.floats(), st.floats()).map(lambda parts: ValueElement("complex", list(parts))),
    st.builds(ValueElement, st.sampled_from(["numpy.int64", "function", "torch.dtype", "slice", "x'y"]), plain),
)
elements = st.recursive(
    st.none() | tensors | plain_values,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, min_size=1, max_size=3).map(MappingElement)
    ),
    max_leaves=8,
)


def call(**fields: Any) -> Call:
    name = parse_api_name(RECORD)
    forward = {"args": [], "kwargs": {}, "output": [], "parameters": {}} | fields
    arriving = forward.pop("grad_outputs", None)
    backward = None if arriving is None else BackwardRecord(f"{name.key}.backward", arriving, [])
    return Call(name, ForwardRecord(name=RECORD, **forward), backward, Path("there"))


def read_back(original: Call) -> Call:
    source = flat(spell_call(original, TorchLanguage(), lambda element: element.data_name))
    allowed = {"slice": slice, "complex": complex, "inf": inf, "nan": nan, "torch": torch, "recorded": recorded}
    spelled: recorded.Call = eval(source, {"__builtins__": {}}, allowed)
    return spelled.replayed_as(RECORD, Path("there"))


@given(
    args=st.lists(elements, max_size=3),
    kwargs=st.dictionaries(st.text(), elements, max_size=3),
    grad_outputs=st.none() | st.lists(elements, max_size=2),
)
def test_a_call_that_is_written_and_read_is_the_same_call(args: Any, kwargs: Any, grad_outputs: Any) -> None:
    original = call(args=args, kwargs=kwargs, grad_outputs=grad_outputs)
    assert repr(read_back(original)) == repr(original)


def test_a_file_is_kept_in_place_of_nothing_else() -> None:
    tensor = TensorElement("torch.Tensor", "torch.float32", (2,), max=1.0, data_name="tensors/x.pt")
    original = call(args=[tensor])
    assert read_back(original) == original


def test_of_outputs_the_tensors_are_kept_as_dtype_and_shape() -> None:
    tensor = TensorElement("torch.Tensor", "torch.float32", (2,), max=1.0)
    (output,) = read_back(call(output=[[tensor], ValueElement("int", 3)])).forward.output
    assert output == TensorElement("torch.Tensor", "torch.float32", (2,))


def test_a_device_is_the_one_under_test() -> None:
    (device,) = read_back(call(args=[ValueElement("torch.device", "npu:3")])).forward.args
    assert isinstance(device, ValueElement)
    assert device.type == "torch.device"


def test_a_positional_dtype_that_the_recording_lost_is_written_as_the_outputs_show_it() -> None:
    half = TensorElement("torch.Tensor", "torch.float16", (2,))
    single = TensorElement("torch.Tensor", "torch.float32", (2,))
    original = call(args=[single, MappingElement({})], output=[half])
    assert read_back(original).forward.args[1] == ValueElement("torch.dtype", "torch.float16")


@pytest.mark.parametrize("name", ["torch.load", "__import__('os')", "torch.float16; import os", "float16", ""])
def test_a_dtype_is_never_more_than_the_name_of_one(name: str) -> None:
    (value,) = read_back(call(args=[ValueElement("torch.dtype", name)])).forward.args
    assert isinstance(value, ValueElement)
    assert value.value in (name, f"torch.{name}")
