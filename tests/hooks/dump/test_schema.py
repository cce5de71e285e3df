from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.schema import (
    Element,
    MappingElement,
    TensorElement,
    ValueElement,
    tensors_of,
    walk,
    walk_tensors,
)

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
