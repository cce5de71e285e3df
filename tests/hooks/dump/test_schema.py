from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.schema import (
    Element,
    MappingElement,
    TensorElement,
    ValueElement,
    backward_record,
    tensors_of,
    walk,
    walk_tensors,
)
from msprobe_hooks.errors import RecordError

_TENSOR = TensorElement("torch.Tensor", "torch.float32", (2,))
_NUMBER = ValueElement("int", 3)

_leaves = st.sampled_from([_TENSOR, _NUMBER, None])
_elements: st.SearchStrategy[Element] = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(MappingElement)
    ),
)


def at(elements: Any, path: str) -> Any:
    """Return what is at a path, one step after the other."""
    for step in path.split(".")[1:]:
        members = elements.items if isinstance(elements, MappingElement) else elements
        elements = members[step] if isinstance(members, dict) else members[int(step)]
    return elements


def test_every_tensor_and_value_is_yielded_with_its_path_in_recorded_order() -> None:
    elements: list[Element] = [_TENSOR, [_NUMBER, MappingElement({"weight": _TENSOR})], None]
    assert list(walk(elements, "input")) == [
        ("input.0", _TENSOR),
        ("input.1.0", _NUMBER),
        ("input.1.1.weight", _TENSOR),
    ]


def test_named_elements_have_their_names_as_paths() -> None:
    assert list(walk({"mask": _TENSOR, "dim": _NUMBER}, "kwargs")) == [
        ("kwargs.mask", _TENSOR),
        ("kwargs.dim", _NUMBER),
    ]


def test_tensors_are_yielded_alone() -> None:
    assert list(walk_tensors([_NUMBER, [_TENSOR]], "args")) == [("args.1.0", _TENSOR)]


@given(st.lists(_elements, max_size=4))
def test_a_path_leads_to_its_leaf_and_each_is_there_once(elements: list[Element]) -> None:
    found = list(walk(elements, "output"))
    assert all(at(elements, path) is leaf for path, leaf in found)
    assert len({path for path, _ in found}) == len(found) == repr(elements).count("Element(type=")
    assert tensors_of(elements) == [leaf for _, leaf in walk_tensors(elements, "output")]


@pytest.mark.parametrize(
    ("said", "known"),
    [
        (2.5, 2.5),
        (3, 3),
        (True, True),
        (2**53 + 1, 2**53 + 1),
        (2**63, 2**63),
        (None, None),
        (math.inf, math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_a_statistic_keeps_its_value_and_kind(said: object, known: object) -> None:
    body = {"input": [{"type": "torch.Tensor", "dtype": "torch.int64", "shape": [2], "Max": said}]}
    tensor = backward_record("Torch.f.0.backward", body).grad_outputs[0]
    assert isinstance(tensor, TensorElement)
    assert (tensor.max, type(tensor.max)) == (known, type(known))


@pytest.mark.parametrize("shape", [[True], [1.0], [-1], [[2]], "2", None, [2**62, 2]])
def test_what_is_no_shape_is_refused_with_its_place(shape: object) -> None:
    body = {"input": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape}]}
    with pytest.raises(RecordError) as refusal:
        backward_record("Torch.f.0.backward", body)
    assert refusal.value.path == '$.data["Torch.f.0.backward"].input[0].shape'


@pytest.mark.parametrize("key", ["data_name", "datapath"])
def test_a_tensors_file_is_known_by_either_name(key: str) -> None:
    body = {"input": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [], key: "x.pt"}]}
    tensor = backward_record("Torch.f.0.backward", body).grad_outputs[0]
    assert isinstance(tensor, TensorElement)
    assert tensor.data_name == "x.pt"
