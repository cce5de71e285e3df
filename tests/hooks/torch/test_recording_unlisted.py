"""Functions that no list of msprobe has, and operators of other libraries."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from msprobe_hooks import record

X = torch.ones(4, 4)


@pytest.fixture
def library():
    """Operators of a library: one with gradients, one that changes its argument."""

    def grow_(x):
        x.data.mul_(3)

    with torch.library._scoped_library("recorded_here", "DEF") as defined:
        defined.define("double(Tensor x) -> Tensor")
        defined.define("grow_(Tensor(a!) x) -> ()")
        defined.impl("double", lambda x: x * 2, "CompositeImplicitAutograd")
        defined.impl("grow_", grow_, "CompositeExplicitAutograd")
        yield torch.ops.recorded_here


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Torch.rnn_tanh", lambda: nn.RNN(4, 2)(X)),
        ("Torch.rnn_relu_cell", lambda: nn.RNNCell(4, 2, nonlinearity="relu")(X)),
        ("Torch.sparse.mm", lambda: torch.sparse.mm(X.to_sparse(), X)),
        ("Tensor.coalesce", lambda: X.to_sparse().coalesce()),
        ("Torch._int_mm", lambda: torch._int_mm(torch.ones(32, 16).char(), torch.ones(16, 16).char())),
        ("Torch.fake_quantize_per_tensor_affine", lambda: torch.fake_quantize_per_tensor_affine(X, 0.1, 0, -128, 127)),
        ("Torch.segment_reduce", lambda: torch.segment_reduce(torch.ones(4), "sum", lengths=torch.tensor([2, 2]))),
        ("Torch.meshgrid", lambda: torch.meshgrid(torch.ones(2), torch.ones(2), indexing="ij")),
        ("Torch.randperm", lambda: torch.randperm(4)),
        ("Tensor.uniform_", lambda: X.clone().uniform_()),
        ("Torch.zeros_like", lambda: torch.zeros_like(X)),
    ],
)
def test_what_msprobe_forgot_is_recorded(tmp_path, records, name, call):
    with record(tmp_path / "d") as session:
        call()
    assert f"{name}.0.forward" in records(tmp_path / "d")
    assert session.summary.errors == {}


def test_the_summary_names_what_ran_unrecorded(tmp_path, library):
    with record(tmp_path / "d") as session:
        torch.tanh(X)
        for _ in range(2):
            torch.special.chebyshev_polynomial_t(X, 2)
        library.double(X)
        assert X.detach().shape == (4, 4)
    said = "not recorded, as msprobe does not record it: "
    names = "special_chebyshev_polynomial_t (2 calls), recorded_here.double (1 call)"
    assert f"{said}{names}" in str(session.summary)


def test_a_recording_of_nothing_else_names_what_ran_unrecorded(tmp_path, library):
    with record(tmp_path / "d") as session:
        library.double(X)
    assert str(session.summary).endswith("not recorded, as msprobe does not record it: recorded_here.double (1 call)")


def test_operators_of_a_library_that_is_named_are_recorded_with_gradients(tmp_path, records, library):
    x = torch.ones(2, requires_grad=True)
    with record(tmp_path / "d", custom_op_namespaces=["recorded_here"]) as session:
        library.double(x).sum().backward()
        library.double.default(x)
    found = records(tmp_path / "d")
    assert found["torch.ops.recorded_here.double.0.backward"]["output"][0]["Max"] == 2.0
    assert "torch.ops.recorded_here.double.default.0.forward" in found
    assert not session.summary.unrecorded


def test_what_an_operator_of_a_library_writes_is_its_output(tmp_path, records, library):
    x = torch.ones(2)
    with record(tmp_path / "d", custom_op_namespaces=["recorded_here"]):
        library.grow_(x)
        torch.tanh(x)
    found = records(tmp_path / "d")
    call = found["torch.ops.recorded_here.grow_.0.forward"]
    assert (call["input_args"][0]["Max"], call["output"][0]["Max"]) == (1.0, 3.0)
    assert found["Torch.tanh.0.forward"]["input_args"][0]["Max"] == 3.0


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.parametrize(
    "make",
    [X.to_sparse, X.to_sparse_csr, lambda: torch.nested.nested_tensor([X, X[:2]], layout=torch.jagged)],
    ids=["coo", "csr", "jagged"],
)
def test_tensors_of_other_layouts_are_written_to_files(tmp_path, records, make):
    tensor = make()
    with record(tmp_path / "d", task="tensor") as session:
        torch.clone(tensor)
    assert session.summary.errors == {}
    name = records(tmp_path / "d")["Torch.clone.0.forward"]["input_args"][0]["data_name"]
    assert torch.load(tmp_path / "d/step0/rank/dump_tensor_data" / name, weights_only=False).layout == tensor.layout
