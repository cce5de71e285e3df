from __future__ import annotations

import inspect
import json
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch import relu as relu_by_name
from torch.utils.checkpoint import checkpoint

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


def test_a_function_imported_by_name_is_recorded(tmp_path, records):
    with record(tmp_path / "d"):
        relu_by_name(X)
    assert list(records(tmp_path / "d")) == ["Torch.relu.0.forward"]


def test_recording_leaves_the_identity_of_functions_alone(tmp_path):
    before = F.gelu, torch.add, torch.Tensor.add
    with record(tmp_path / "d"):
        assert (F.gelu, torch.add, torch.Tensor.add) == before
        assert F.gelu is before[0]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: x + x, "Tensor.__add__"),
        (lambda x: x.add(x), "Tensor.add"),
        (lambda x: torch.add(x, x), "Torch.add"),
        (lambda x: x - 1, "Tensor.__sub__"),
        (lambda x: 1 - x, "Tensor.__rsub__"),
        (lambda x: x * 2, "Tensor.__mul__"),
        (lambda x: x / 2, "Tensor.__truediv__"),
        (lambda x: x // 2, "Tensor.__floordiv__"),
        (lambda x: x % 2, "Tensor.__mod__"),
        (lambda x: x**2, "Tensor.__pow__"),
        (lambda x: x.pow(2), "Tensor.pow"),
        (lambda x: x @ x, "Tensor.__matmul__"),
        (lambda x: x > 1, "Tensor.__gt__"),
        (lambda x: x != 1, "Tensor.__ne__"),
        (lambda x: x == 1, "Tensor.__eq__"),
        (lambda x: x[0], "Tensor.__getitem__"),
        (lambda x: F.conv2d(x[None, None], x[None, None]), "Functional.conv2d"),
        (lambda x: F.max_pool2d(x[None], 2), "Functional.max_pool2d"),
        (lambda x: torch.linalg.norm(x), "Torch.linalg.norm"),
        (lambda x: F.gelu(x), "Functional.gelu"),
        (lambda x: nn.LSTM(4, 4)(x[None]), "VF.lstm"),
    ],
)
def test_a_call_is_named_as_it_was_written(tmp_path, records, call, name):
    with record(tmp_path / "d"):
        call(X.clone())
    assert f"{name}.0.forward" in records(tmp_path / "d")


def test_augmented_assignment_is_named_by_its_operator(tmp_path, records):
    x = X.clone()
    with record(tmp_path / "d"):
        x += 1
        x.add_(1)
    assert list(records(tmp_path / "d")) == ["Tensor.__iadd__.0.forward", "Tensor.add_.0.forward"]


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


def test_nested_calls_are_recorded_once_at_the_outermost_level(tmp_path, records):
    attention = nn.MultiheadAttention(4, 1)
    with record(tmp_path / "d"):
        attention(X[None], X[None], X[None])
    names = list(records(tmp_path / "d"))
    assert "Functional.multi_head_attention_forward.0.forward" in names
    assert not [name for name in names if "linear" in name or "softmax" in name]


def test_an_in_place_call_shows_its_input_before_the_change(tmp_path, records):
    x = X.clone()
    with record(tmp_path / "d"):
        x.mul_(10)
    body = records(tmp_path / "d")["Tensor.mul_.0.forward"]
    assert body["input_args"][0]["Max"] == 1.5
    assert body["output"][0]["Max"] == 15.0


def test_a_call_that_raises_leaves_a_record_and_recording_goes_on(tmp_path, records):
    with record(tmp_path / "d") as session:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.mm(X, X[:3])
        torch.mm(X, X)
    found = records(tmp_path / "d")
    assert "shapes cannot be multiplied" in found["Torch.mm.0.forward"]["exception"]
    assert "exception" not in found["Torch.mm.1.forward"]
    assert session.recorder.summary.raised == 1


def test_threads_that_begin_while_recording_are_recorded(tmp_path, records):
    with record(tmp_path / "d"):
        worker = threading.Thread(target=lambda: torch.tanh(X))
        worker.start()
        worker.join()
    assert "Torch.tanh.0.forward" in records(tmp_path / "d")


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_a_checkpoint_recomputes_is_recorded_and_marked(tmp_path, records, use_reentrant):
    x = X.clone().requires_grad_()
    with record(tmp_path / "d"):
        checkpoint(torch.tanh, x, use_reentrant=use_reentrant).sum().backward()
    found = records(tmp_path / "d")
    assert not found["Torch.tanh.0.forward"]["is_recompute"]
    assert found["Torch.tanh.1.forward"]["is_recompute"]


def test_the_stack_of_a_call_ends_in_the_users_code(tmp_path):
    with record(tmp_path / "d"):
        F.relu(X)
    ((names, frames),) = json.loads((tmp_path / "d/step0/rank/stack.json").read_text()).values()
    assert names == ["Functional.relu.0.forward"]
    assert "test_recording_calls.py" in frames[0]
    assert "F.relu(X)" in frames[0]


def test_equal_stacks_are_written_once(tmp_path):
    with record(tmp_path / "d"):
        for _ in range(3):
            torch.tanh(X)
    ((names, _),) = json.loads((tmp_path / "d/step0/rank/stack.json").read_text()).values()
    assert len(names) == 3


def test_a_recorder_inside_another_records_too(tmp_path, records):
    with record(tmp_path / "outer"):
        X + X
        with record(tmp_path / "inner"):
            X * X
    assert list(records(tmp_path / "outer")) == ["Tensor.__add__.0.forward", "Tensor.__mul__.0.forward"]
    assert list(records(tmp_path / "inner")) == ["Tensor.__mul__.0.forward"]


def test_nothing_is_seen_after_the_end(tmp_path):
    with record(tmp_path / "d") as session:
        X + X
    X + X
    assert session.recorder.summary.calls == 1
    assert torch._C._len_torch_function_stack() == 0


def test_a_mode_entered_inside_survives_the_end_of_recording(tmp_path):
    session = record(tmp_path / "d")
    session.__enter__()
    with torch.device("meta"):
        session.__exit__(None, None, None)
        assert torch.empty(1).is_meta
    assert not torch.empty(1).is_meta


def test_the_dump_is_readable_while_it_is_being_written(tmp_path):
    with record(tmp_path / "d") as session:
        for _ in range(1500):
            torch.tanh(X)
        dump = read_dump(tmp_path / "d/step0/rank/dump.json")
        assert len(dump.records) == 1000
    assert session.recorder.summary.calls == 1500


def test_special_values_are_recorded_as_bare_tokens(tmp_path):
    x = torch.tensor([1.0, float("inf"), float("nan")])
    with record(tmp_path / "d"):
        torch.clamp(x, max=float("inf"))
    path = tmp_path / "d/step0/rank/dump.json"
    assert '"Max": NaN' in path.read_text().replace('":', '": ')
    record_ = read_dump(path).forward("Torch.clamp.0.forward")
    assert record_.args[0].finite_max == 1.0
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

    with record(tmp_path / "d") as session, FakeTensorMode():
        torch.relu(torch.ones(2, 3))
    assert session.recorder.summary.errors == {}
    entry = records(tmp_path / "d")["Torch.relu.0.forward"]["input_args"][0]
    assert (entry["type"], entry["Max"]) == ("torch._subclasses.fake_tensor.FakeTensor", None)


def test_calls_under_vmap_are_recorded_without_numbers(tmp_path):
    with record(tmp_path / "d") as session:
        torch.vmap(torch.tanh)(X)
    assert session.recorder.summary.errors == {}
    assert session.recorder.summary.calls >= 1


def test_running_statistics_are_measured_at_every_call(tmp_path, records):
    norm, x = nn.BatchNorm1d(4), X.clone()
    with record(tmp_path / "d"):
        for _ in range(2):
            norm(x)
        want = norm.running_var.max().item()
        norm(x)
    found = records(tmp_path / "d")
    first, second, third = (found[f"Functional.batch_norm.{i}.forward"]["input_args"][2]["Max"] for i in range(3))
    assert first != second != third == want


@pytest.mark.parametrize("kind", ["foreach", "fused"])
def test_parameters_are_measured_anew_after_an_optimizer_step(tmp_path, records, kind):
    linear = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.5, **{kind: True})
    with record(tmp_path / "d"):
        linear(X).sum().backward()
        optimizer.step()
        linear(X)
    second = records(tmp_path / "d")["Functional.linear.1.forward"]["input_args"][1]
    assert second["Max"] == linear.weight.max().item()


def stepped(optimizer_class, **options):
    """A parameter of ones, its gradient of ones, and an optimizer over it."""
    parameter = nn.Parameter(torch.ones(3))
    parameter.grad = torch.ones(3)
    return parameter, optimizer_class([parameter], lr=0.5, **options)


FOREACH = [
    name
    for name in torch.optim.__all__
    if isinstance(getattr(torch.optim, name), type)
    and "foreach" in inspect.signature(getattr(torch.optim, name)).parameters
]


@pytest.mark.parametrize("name", FOREACH)
def test_every_optimizer_records_its_calls_for_many_tensors(tmp_path, records, name):
    parameter, optimizer = stepped(getattr(torch.optim, name), foreach=True)
    with record(tmp_path / "d") as session:
        optimizer.step()
    found = records(tmp_path / "d")
    calls = [call for record, call in found.items() if "_foreach_" in record]
    after = [entry["Max"] for call in calls for entry in _tensors(call["output"])]
    assert session.summary.errors == {}
    assert parameter.max().item() in after


@pytest.mark.parametrize("name", ["Adagrad", "Adam", "AdamW", "SGD"])
def test_a_fused_optimizer_records_its_lists_before_and_after(tmp_path, records, name):
    parameter, optimizer = stepped(getattr(torch.optim, name), fused=True)
    with record(tmp_path / "d"):
        optimizer.step()
    (call,) = [call for name, call in records(tmp_path / "d").items() if "_fused_" in name]
    assert call["input_args"][0][0]["Max"] == 1.0
    assert call["output"][0][0]["Max"] == parameter.max().item() != 1.0


def test_a_call_for_many_tensors_shows_them_before_and_after(tmp_path, records):
    x = [torch.zeros(2), torch.ones(2)]
    with record(tmp_path / "d"):
        torch._foreach_add_(x, 1.0)
    call = records(tmp_path / "d")["Torch._foreach_add_.0.forward"]
    assert [entry["Max"] for entry in call["input_args"][0]] == [0.0, 1.0]
    assert [entry["Max"] for entry in call["output"]] == [1.0, 2.0]


def _tensors(elements):
    for element in elements:
        if isinstance(element, list):
            yield from _tensors(element)
        elif element is not None and "Max" in element:
            yield element


def test_memory_changed_behind_the_version_counter_is_measured_anew(tmp_path, records):
    x = X.clone()
    with record(tmp_path / "d"):
        torch.tanh(x)
        x.data.add_(1)
        torch.tanh(x)
    found = records(tmp_path / "d")
    assert found["Torch.tanh.1.forward"]["input_args"][0]["Max"] == X.max().item() + 1


def test_gradients_reduced_by_data_parallelism_are_measured_anew(tmp_path, records):
    linear = nn.Linear(4, 4)
    with record(tmp_path / "d"):
        linear(X).sum().backward()
        torch.tanh(linear.weight.grad)
        with torch.autograd._unsafe_preserve_version_counter(linear.weight.grad):
            linear.weight.grad.mul_(3)
        torch.autograd.backward([linear(X).sum()], inputs=[linear.bias])
        torch.tanh(linear.weight.grad)
    found = records(tmp_path / "d")
    assert found["Torch.tanh.1.forward"]["input_args"][0]["Max"] == linear.weight.grad.max().item()


def test_two_recordings_at_once_see_the_same_calls(tmp_path, records):
    x = torch.ones(2, requires_grad=True)
    with record(tmp_path / "outer"), record(tmp_path / "inner"):
        F.softmax(2.0 + x, dim=-1).sum().backward()
    inner = records(tmp_path / "inner")
    assert "Tensor.__radd__.0.forward" in inner
    assert list(records(tmp_path / "outer")) == list(inner)


def test_operators_have_no_backward_records(tmp_path, records):
    x = torch.ones(2, requires_grad=True)
    with record(tmp_path / "d", "aten"):
        # The graph of a gradient's graph is made while operators are seen.
        (gradient,) = torch.autograd.grad(torch.tanh(x).sum(), x, create_graph=True)
        gradient.sum().backward()
    found = records(tmp_path / "d")
    assert found
    assert not [name for name in found if name.endswith(".backward")]


def test_a_custom_call_whose_arguments_cannot_be_looked_at_is_not_recorded(tmp_path, records):
    class Hostile(dict):
        def items(self):
            raise RuntimeError("go away")

    class Library:
        __name__ = "library"

        @staticmethod
        def double(options):
            return torch.ones(2) * 2

    with record(tmp_path / "d") as session:
        session.register_custom_api(Library, "double", "Mine")
        result = Library.double(Hostile(a=torch.ones(2)))
        session.restore_custom_api(Library, "double")
        torch.tanh(torch.ones(2))
    assert result.tolist() == [2.0, 2.0]
    assert dict(session.summary.errors) == {"Mine.double: RuntimeError: go away": 1}
    assert list(records(tmp_path / "d")) == ["Torch.tanh.0.forward"]


def test_a_number_that_takes_a_tensor_in_place_is_on_its_left(tmp_path, records):
    with record(tmp_path / "d"):
        total = 0
        total += X
        factor = 2
        factor *= X
    assert list(records(tmp_path / "d")) == ["Tensor.__radd__.0.forward", "Tensor.__rmul__.0.forward"]


def test_functions_of_python_use_operators(tmp_path, records):
    with record(tmp_path / "d"):
        sum([X, X])
    assert list(records(tmp_path / "d")) == ["Tensor.__radd__.0.forward", "Tensor.__add__.0.forward"]


def test_a_method_that_is_looked_up_by_its_name_is_no_operator(tmp_path, records):
    with record(tmp_path / "d") as session:
        getattr(X, "ad" + "d")(2.0, alpha=3)
        getattr(X, "mu" + "l")(other=X)
    assert list(records(tmp_path / "d")) == ["Tensor.add.0.forward", "Tensor.mul.0.forward"]
    assert not session.summary.errors


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_checkpointing_that_stops_early_is_no_error_and_leaves_the_call_its_result(tmp_path, records, level):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def gradients():
        model.zero_grad()
        checkpoint(model, X.clone().requires_grad_(), use_reentrant=False).sum().backward()
        return [parameter.grad.clone() for parameter in model.parameters()]

    want = gradients()
    with record(tmp_path / "d", level, model=model) as session:
        got = gradients()
    assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))
    assert session.summary.raised == 0
    again = [call for call in records(tmp_path / "d").values() if call.get("is_recompute") and "parameters" not in call]
    assert len(again) == 3
    assert all(call["output"] and "exception" not in call for call in again)
