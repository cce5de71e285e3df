from __future__ import annotations

from typing import Any

import pytest
import torch

from msprobe_hooks.dump.json_records import backward_body
from msprobe_hooks.dump.memory_layouts import Layout, contiguous_stride, format_stride, layout_of, span
from msprobe_hooks.dump.schema import TensorElement, backward_record
from msprobe_hooks.errors import RecordError

SHAPES = [(), (3,), (2, 3), (1, 1, 4), (0, 3), (2, 0, 5), (2, 3, 4, 5), (2, 1, 4, 1), (2, 3, 4, 5, 6)]


def decoded(shape: tuple[int, ...], **fields: Any) -> Layout | None:
    entry = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": list(shape), **fields}
    element = backward_record("Torch.f.0.backward", {"input": [entry], "output": []}).grad_outputs[0]
    assert isinstance(element, TensorElement)
    return element.layout


@pytest.mark.parametrize("shape", SHAPES)
def test_contiguous_strides_are_those_of_torch(shape: tuple[int, ...]) -> None:
    assert contiguous_stride(shape) == torch.empty(shape).stride()


@pytest.mark.parametrize("name", ["channels_last", "channels_last_3d"])
@pytest.mark.parametrize("shape", SHAPES[-3:])
def test_strides_of_memory_formats_are_those_of_torch(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) == {"channels_last": 4, "channels_last_3d": 5}[name]:
        assert format_stride(name, shape) == torch.empty(shape, memory_format=getattr(torch, name)).stride()
    else:
        assert format_stride(name, shape) is None


def test_a_span_reaches_from_the_first_element_to_the_last() -> None:
    assert span((3, 4), (1, 30)) == 93
    assert span((3, 4), (0, 0)) == 1
    assert span((0, 4), (4, 1)) == 0


def test_a_tensor_without_keys_has_no_layout() -> None:
    assert decoded((2, 3)) is None


def test_all_keys_are_read() -> None:
    keys = {"stride": [1, 2], "storage_offset": 4, "storage_size": 20, "storage": 1, "is_conj": True, "is_neg": True}
    assert decoded((2, 3), **keys) == Layout((1, 2), 4, 20, 1, is_conj=True, is_neg=True)


def test_a_memory_format_is_read_as_strides() -> None:
    assert decoded((2, 3, 4, 5), memory_format="channels_last") == Layout((60, 1, 15, 3))


def test_without_strides_an_offset_is_that_of_a_contiguous_tensor() -> None:
    assert decoded((2, 3), storage_offset=4) == Layout((3, 1), 4)


def test_the_layout_of_a_file_of_an_older_spelling_is_read() -> None:
    assert decoded((2, 3), stride=[1, 2], datapath="x.pt") == Layout((1, 2))


def test_what_others_call_layout_is_not_taken_for_one() -> None:
    assert decoded((2, 3), layout={"stride": [9, 9]}) is None


def test_a_layout_is_passed_on() -> None:
    entry = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "stride": [1, 2], "storage_offset": 4}
    record = backward_record("Torch.f.0.backward", {"input": [entry | {"storage": 0, "storage_size": 12}]})
    assert backward_record("Torch.f.0.backward", backward_body(record)) == record


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"stride": [1]}, "stride"),
        ({"stride": [1, 2, 3]}, "stride"),
        ({"stride": [-1, 2]}, "stride"),
        ({"stride": [1.0, 2]}, "stride"),
        ({"stride": [True, 2]}, "stride"),
        ({"stride": "ab"}, "stride"),
        ({"stride": [2**62, 2**62]}, "stride"),
        ({"stride": [10**400, 1]}, "stride"),
        ({"stride": [1] * 100_000}, "stride"),
        ({"storage_offset": -1}, "storage_offset"),
        ({"storage_offset": "4"}, "storage_offset"),
        ({"storage_offset": 2**63 - 2}, "stride"),
        ({"storage_size": 5}, "storage_size"),
        ({"storage_size": 7, "storage_offset": 2}, "storage_size"),
        ({"storage": [0]}, "storage"),
        ({"memory_format": "channels_last"}, "memory_format"),
        ({"memory_format": 7}, "memory_format"),
    ],
)
def test_a_layout_that_no_tensor_has_is_refused_by_its_place(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(RecordError) as caught:
        decoded((2, 3), **fields)
    assert caught.value.path == f'$.data["Torch.f.0.backward"].input[0].{place}'
    assert len(str(caught.value)) < 1000


def test_fields_that_name_no_layout_are_passed_over() -> None:
    assert layout_of({"shape": [2], "md5": "x"}, (2,), "$") is None
