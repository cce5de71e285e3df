"""What is recorded of arguments and results: as they were given, of whatever kind they are."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.record import record

X = torch.arange(16.0).reshape(4, 4) / 10


def values(elements):
    """The plain values of recorded elements; tensors become their shapes."""
    return [
        None
        if element is None
        else tuple(element["shape"])
        if "shape" in element
        else [values([item])[0] for item in element]
        if isinstance(element, list)
        else element.get("value")
        for element in elements
    ]


@pytest.mark.parametrize(
    ("call", "args", "kwargs"),
    [
        (lambda x: F.dropout(x, 0.1, True), [(4, 4), 0.1, True], {}),
        (lambda x: F.dropout(x, p=0.1), [(4, 4)], {"p": 0.1}),
        (lambda x: F.softmax(x, dim=-1), [(4, 4)], {"dim": -1}),
        (lambda x: F.softmax(x, -1), [(4, 4), -1], {}),
        (lambda x: x.split(2), [(4, 4), 2], {}),
        (lambda x: x.norm(2), [(4, 4), 2], {}),
        (lambda x: x.norm(), [(4, 4)], {}),
        (lambda x: torch.Tensor.norm(x, p=1), [(4, 4)], {"p": 1}),
        (lambda x: F.max_pool2d(x[None], 2, stride=1), [(1, 4, 4), 2], {"stride": 1}),
        (lambda x: F.cross_entropy(x, torch.arange(4)), [(4, 4), (4,)], {}),
        (lambda x: torch.einsum("ij,jk->ik", x, x), ["ij,jk->ik", (4, 4), (4, 4)], {}),
    ],
)
def test_arguments_are_recorded_as_they_were_given(tmp_path, records, call, args, kwargs):
    with record(tmp_path / "d"):
        call(X.clone())
    *_, last = (body for name, body in records(tmp_path / "d").items() if name.endswith("forward"))
    assert values(last["input_args"]) == args
    assert {key: values([value])[0] for key, value in last["input_kwargs"].items()} == kwargs


def test_special_values_are_recorded_as_bare_tokens(tmp_path):
    x = torch.tensor([1.0, float("inf"), float("nan")])
    with record(tmp_path / "d"):
        torch.clamp(x, max=float("inf"))
    path = tmp_path / "d/step0/rank/dump.json"
    assert '"Max": NaN' in path.read_text().replace('":', '": ')
    record_ = read_dump(path).forward("Torch.clamp.0.forward")
    assert record_.args[0].finite_max == 1.0
    assert (record_.args[0].nan_count, record_.args[0].posinf_count, record_.args[0].neginf_count) == (1, 1, 0)
    assert record_.kwargs["max"].value == float("inf")


def test_what_the_format_loses_is_kept_in_details(tmp_path, records):
    with record(tmp_path / "d"):
        torch.reshape(X, (2, 8))
        torch.mul(X, 1 + 2j)
        torch.ones_like(X, dtype=torch.float64)
        X.to(torch.float64)
        torch.max(X, dim=0)
    found = records(tmp_path / "d")
    assert found["Torch.reshape.0.forward"]["details"]["input.1"] == {"container": "tuple"}
    assert found["Torch.mul.0.forward"]["details"]["input.1"] == {"type": "complex", "value": [1.0, 2.0]}
    assert found["Torch.mul.0.forward"]["input_args"][1] is None
    assert found["Torch.ones_like.0.forward"]["input_kwargs"]["dtype"] == {
        "type": "torch.dtype",
        "value": "torch.float64",
    }
    assert found["Tensor.to.0.forward"]["input_args"][1] == {}
    assert found["Tensor.to.0.forward"]["details"]["input.1"] == {"type": "torch.dtype", "value": "torch.float64"}
    assert found["Torch.max.0.forward"]["details"]["output"]["container"].endswith("max")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(0, 3),
        torch.empty(2, 3, device="meta"),
        torch.ones(3).to_sparse(),
        torch.tensor([1, 2], dtype=torch.uint16),
        torch.tensor(True),
        torch.ones(3, dtype=torch.complex64),
        torch.ones(3).to(torch.float8_e4m3fn),
    ],
    ids=str,
)
def test_any_kind_of_tensor_can_be_recorded(tmp_path, records, tensor):
    with record(tmp_path / "d") as session:
        torch.clone(tensor)
    assert session.recorder.summary.errors == {}
    assert records(tmp_path / "d")["Torch.clone.0.forward"]["input_args"][0]["shape"] == list(tensor.shape)


def test_fake_tensors_are_recorded_without_numbers(tmp_path, records):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2, 3)
    with record(tmp_path / "d") as session:
        torch.relu(fake)
    assert session.recorder.summary.errors == {}
    entry = records(tmp_path / "d")["Torch.relu.0.forward"]["input_args"][0]
    assert (entry["type"], entry["Max"]) == ("torch._subclasses.fake_tensor.FakeTensor", None)


def test_fake_tensors_have_no_files(tmp_path, records):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(2, 3)
    with record(tmp_path / "d", task="tensor") as session:
        fake.stride()
    assert session.recorder.summary.errors == {}
    assert "data_name" not in records(tmp_path / "d")["Tensor.stride.0.forward"]["input_args"][0]


def test_calls_under_vmap_are_recorded_without_numbers(tmp_path):
    with record(tmp_path / "d") as session:
        torch.vmap(torch.tanh)(X)
    assert session.recorder.summary.errors == {}
    assert session.recorder.summary.calls >= 1
