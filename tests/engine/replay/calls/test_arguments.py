"""Recorded elements of every type become the arguments that they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.dump.schema import forward_record
from pytest_msprobe.engine.replay.call import Call
from pytest_msprobe.engine.replay.calls.arguments import Arguments, DeviceArgument, build_arguments
from pytest_msprobe.results.outcomes import Skip, SkipReason

X = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [4, 6], "Max": 2.0, "Min": -1.0, "requires_grad": True}
INDEX = {"type": "torch.Tensor", "dtype": "torch.int64", "shape": [3], "Max": 2.0, "Min": 0.0, "requires_grad": False}


def tensor(**fields: Any) -> dict[str, Any]:
    return {**X, **fields}


def value(kind: str, content: Any) -> dict[str, Any]:
    return {"type": kind, "value": content}


def built(
    *args: Any,
    api: str = "Torch.add",
    output: Any = None,
    folder: Path = Path("none"),
    real: bool = True,
    **kwargs: Any,
) -> Arguments:
    name = parse_api_name(f"{api}.0.forward")
    body = {"input_args": list(args), "input_kwargs": kwargs, "output": [X] if output is None else output}
    record = forward_record(str(name), json.loads(json.dumps(body)))
    return build_arguments(Call(name, record, None, folder), seed=0, real_data=real)


@pytest.mark.parametrize(
    ("element", "argument"),
    [
        (None, None),
        (value("int", 3), 3),
        (value("bool", True), True),
        (value("float", 0.5), 0.5),
        (value("str", "mean"), "mean"),
        (value("slice", [1, None, 2]), slice(1, None, 2)),
        (value("ellipsis", "..."), ...),
        (value("torch.Size", [2, 3]), torch.Size([2, 3])),
        (value("torch.dtype", "torch.bfloat16"), torch.bfloat16),
        ({"type": "torch.memory_format", "format": "channels_last"}, torch.channels_last),
        (value("torch.layout", "torch.strided"), torch.strided),
        (value("float32", 0.25), 0.25),
        (value("int64", 7), 7),
        (value("bool_", False), False),
        (value("complex", [1.0, -2.0]), 1 - 2j),
        ([value("int", 1), [value("int", 2), None]], [1, [2, None]]),
        ({"beta": value("float", 0.1), "inner": {"n": value("int", 2)}}, {"beta": 0.1, "inner": {"n": 2}}),
    ],
    ids=str,
)
def test_plain_elements_become_their_values(element: Any, argument: Any) -> None:
    found = built(X, element, key=element)
    assert found.args[1] == argument
    assert found.kwargs["key"] == argument
    assert type(found.args[1]) is type(argument)


def test_non_finite_numbers_arrive_as_such() -> None:
    assert built(X, value("float", "-Infinity")).args[1] == float("-inf")


def test_a_device_stands_for_the_device_of_each_side() -> None:
    assert built(X, value("torch.device", "npu:0")).args[1] == DeviceArgument()
    assert built(X, device=value("torch.device", "cpu:None")).kwargs["device"] == DeviceArgument()
    assert built(X, device=value("str", "cuda:3")).kwargs["device"] == DeviceArgument()
    assert built(X, device=value("int", 3)).kwargs["device"] == DeviceArgument()
    assert built(X, value("str", "npu:0"), api="Tensor.to").args[1] == DeviceArgument()


def test_tensors_are_found_wherever_they_are_nested() -> None:
    found = built([X, [X]], {"a": X}, weight=X)
    tensors = [found.args[0][0], found.args[0][1][0], found.args[1]["a"], found.kwargs["weight"]]
    assert all(each.shape == (4, 6) and each.dtype is torch.float32 for each in tensors)
    assert len({tuple(each.flatten().tolist()) for each in tensors}) == 4
    assert found.differentiable == {"args.0.0", "args.0.1.0", "args.1.a", "kwargs.weight"}


def test_tensor_subclasses_and_parameters_are_tensors() -> None:
    kinds = ("torch.nn.parameter.Parameter", "torch.distributed.tensor.DTensor", "BatchedTensor")
    assert all(isinstance(built(tensor(type=kind)).args[0], torch.Tensor) for kind in kinds)


def test_numpy_arrays_stay_arrays() -> None:
    array = {"type": "numpy.ndarray", "dtype": "int64", "shape": [5], "Max": 9, "Min": 2, "Mean": 5, "Norm": 11}
    found = built(X, array).args[1]
    assert isinstance(found, np.ndarray)
    assert (found.dtype, found.shape, found.max(), found.min()) == (np.int64, (5,), 9, 2)


def test_inputs_depend_on_the_seed_but_not_on_the_other_arguments() -> None:
    assert torch.equal(built(X, X).args[1], built(None, X).args[1])
    assert torch.equal(built(X, other=X).kwargs["other"], built(other=X).kwargs["other"])
    assert not torch.equal(built(X, X).args[0], built(X, X).args[1])


def test_the_index_of_getitem_is_a_tuple_again() -> None:
    index = built(X, [value("slice", [1, 3, None]), None, INDEX], api="Tensor.__getitem__").args[1]
    assert isinstance(index, tuple)
    assert index[:2] == (slice(1, 3), None)


def test_a_list_of_positions_stays_a_list_where_the_output_shows() -> None:
    positions = [value("int", 0), value("int", 2)]
    assert built(X, positions, api="Tensor.__getitem__", output=[tensor(shape=[2, 6])]).args[1] == [0, 2]
    assert built(X, positions, api="Tensor.__getitem__", output=[tensor(shape=[])]).args[1] == (0, 2)
    three = [*positions, value("int", 1)]
    assert built(X, three, X, api="Tensor.__setitem__", output=[None]).args[1] == [0, 2, 1]


LOST: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("api", "elements", "output_dtype", "arguments"),
    [
        ("Tensor.to", [LOST], "torch.float16", [torch.float16]),
        ("Tensor.to", [LOST], "torch.float32", [DeviceArgument()]),
        ("Tensor.to", [LOST, LOST], "torch.float16", [DeviceArgument(), torch.float16]),
        ("Tensor.type", [LOST], "torch.float64", [torch.float64]),
        ("Tensor.view", [LOST], "torch.int32", [torch.int32]),
        ("Torch.softmax", [value("int", -1), LOST], "torch.float64", [-1, torch.float64]),
    ],
)
def test_a_lost_positional_dtype_or_device_is_reported_by_the_output(
    api: str, elements: list[Any], output_dtype: str, arguments: list[Any]
) -> None:
    found = built(X, *elements, api=api, output=[tensor(dtype=output_dtype)])
    assert list(found.args[1:]) == arguments


@pytest.mark.parametrize("key", ["dst_type", "dst_dtype", "y_dtype"])
def test_a_lost_dtype_of_a_quantizing_operator_is_that_of_its_first_result(key: str) -> None:
    options = {key: LOST, "other": LOST}
    found = built(X, api="NPU.npu_dynamic_quant", output=[tensor(dtype="torch.float8_e5m2"), X], **options)
    assert found.kwargs == {key: torch.float8_e5m2, "other": {}}


def test_a_lost_argument_that_nothing_shows_is_a_skip() -> None:
    with pytest.raises(Skip) as caught:
        built(X, LOST, api="Tensor.to", output=[None])
    assert caught.value.reason is SkipReason.LOST_ARGUMENT


@pytest.mark.parametrize(
    "element",
    [
        value("slice", None),
        value("slice", [1]),
        value("torch.layout", "torch.load"),
        {"type": "torch.memory_format", "format": "hub"},
        value("complex", None),
        value("torch.ProcessGroup", [1, 2]),
    ],
    ids=str,
)
def test_what_cannot_be_rebuilt_is_a_skip_that_names_the_place(element: Any) -> None:
    with pytest.raises(Skip, match=r"args\.1") as caught:
        built(X, element)
    assert caught.value.reason is SkipReason.LOST_ARGUMENT


def test_a_dtype_that_torch_lacks_is_a_skip() -> None:
    with pytest.raises(Skip) as caught:
        built(X, value("torch.dtype", "torch_npu.HiFloat8"))
    assert caught.value.reason is SkipReason.UNKNOWN_DTYPE


def test_a_record_without_any_data_is_a_skip() -> None:
    with pytest.raises(Skip) as caught:
        built(output=[])
    assert caught.value.reason is SkipReason.NO_ARGUMENTS


def test_nothing_is_differentiated_through_out() -> None:
    assert not built(X, X, out=X).differentiable
    assert built(X, X).differentiable == {"args.0", "args.1"}


@pytest.mark.parametrize("dtype", ["torch.int32", "torch.int16"])
def test_narrow_class_numbers_are_widened_because_the_cpu_takes_no_others(dtype: str) -> None:
    target = {**INDEX, "dtype": dtype, "shape": [4]}
    assert built(X, target, api="Functional.cross_entropy").args[1].dtype is torch.int64
    assert built(input=X, target=target, api="Functional.nll_loss").kwargs["target"].dtype is torch.int64


def test_real_data_are_loaded_and_left_as_they_are(tmp_path: Path) -> None:
    stored = torch.tensor([9, 1, 1])
    torch.save(stored, tmp_path / "index.pt")
    table = tensor(shape=[10, 2])
    index = {**INDEX, "data_name": "index.pt"}
    found = built(index, table, api="Functional.embedding", folder=tmp_path)
    assert torch.equal(found.args[0], stored)
    by_name = built(input=index, weight=tensor(shape=[5, 2]), api="Functional.embedding", folder=tmp_path)
    assert torch.equal(by_name.kwargs["input"], stored)
    drawn = built(index, table, api="Functional.embedding", folder=tmp_path, real=False)
    assert not torch.equal(drawn.args[0], stored)
