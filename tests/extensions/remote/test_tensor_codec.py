"""Tensors as bytes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.engine.replay.determinism import unequal_bits
from pytest_msprobe.extensions.remote.codec import FormError, as_node, digest, from_node, packed, unpacked, without_gaps
from pytest_msprobe.extensions.remote.messages import (
    AtArgument,
    AtTensor,
    Complex,
    Dtype,
    Fixed,
    Items,
    Members,
    Node,
    Size,
    TensorForm,
)
from pytest_msprobe.results.outcomes import Skip

DTYPES = [
    torch.float64, torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int64, torch.uint8, torch.bool,
    torch.complex64,
]  # fmt: skip


def crossed(tensor: torch.Tensor) -> torch.Tensor:
    form, blob = packed(tensor)
    return unpacked(form, bytearray(blob))


@given(
    st.lists(st.integers(0, 4), max_size=3),
    st.sampled_from(DTYPES),
    st.sampled_from(["as it is", "transposed", "every other", "expanded", "conjugate"]),
)
def test_a_tensor_arrives_bit_by_bit_and_laid_out_as_it_was(shape: list[int], dtype: torch.dtype, layout: str) -> None:
    tensor = (torch.randn(shape) * 3).to(dtype)
    if layout == "transposed":
        tensor = tensor.permute(tuple(reversed(range(tensor.dim()))))
    elif layout == "every other" and shape:
        tensor = tensor[..., ::2]
    elif layout == "expanded":
        tensor = tensor.unsqueeze(0).expand(3, *shape)
    elif layout == "conjugate":
        tensor = tensor.conj()
    found = crossed(tensor)
    assert (found.dtype, found.shape, found.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert not unequal_bits(found.contiguous(), tensor.contiguous()).any()


@pytest.mark.parametrize(
    "tensor", [torch.randn(3, 4, dtype=torch.complex64).mH, torch.randn(5, dtype=torch.complex64).conj().imag]
)
def test_lazy_bits_arrive_too(tensor: torch.Tensor) -> None:
    found = crossed(tensor)
    assert (found.is_conj(), found.is_neg(), found.stride()) == (tensor.is_conj(), tensor.is_neg(), tensor.stride())
    assert torch.equal(found, tensor)


def test_inputs_that_differ_in_a_lazy_bit_alone_are_others() -> None:
    values = torch.randn(4)
    assert digest({"x": packed(values)}) != digest({"x": packed(torch._neg_view(-values))})


def test_a_bit_that_a_dtype_cannot_have_is_left_out() -> None:
    found = unpacked(TensorForm("torch.bool", (2,), (1,), is_conj=True, is_neg=True), bytearray([1, 0]))
    assert found.tolist() == [True, False]


def test_what_lies_between_elements_arrives_too() -> None:
    memory = torch.arange(8.0)
    found = crossed(memory[::2])
    assert found.as_strided((7,), (1,)).tolist() == memory[:7].tolist()
    form, blob = packed(without_gaps(memory[::2]))
    assert (form.stride, blob.nbytes) == ((1,), 16)


def test_whether_gradients_pass_is_reported() -> None:
    assert crossed(torch.ones(2, requires_grad=True)).requires_grad
    assert not crossed(torch.ones(2)).requires_grad
    assert not unpacked(TensorForm("torch.int64", (1,), (1,), True), bytearray(8)).requires_grad


def test_bytes_of_a_bool_that_are_neither_0_nor_1_are_true() -> None:
    found = unpacked(TensorForm("torch.bool", (3,), (1,)), bytearray([0, 1, 7]))
    assert (found | torch.zeros(3, dtype=torch.bool)).tolist() == [False, True, True]
    assert found.view(torch.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    "form",
    [
        TensorForm("torch.float32", (3,), (1,)),
        TensorForm("torch.float32", (2,), (2,)),
        TensorForm("torch.float32", (-2,), (1,)),
        TensorForm("torch.float32", (2,), (-1,)),
        TensorForm("torch.float32", (2,), ()),
        TensorForm("torch.float32", (2**40, 2**40), (0, 2**40)),
    ],
)
def test_bytes_that_are_not_what_they_are_said_to_be_are_refused(form: TensorForm) -> None:
    with pytest.raises(FormError, match=r"8 bytes as torch\.float32"):
        unpacked(form, bytearray(8))


@pytest.mark.parametrize(("shape", "stride"), [((0, 2**64 - 1), (1, 1)), ((0, 2), (1, 2**63)), ((1, 2), (2**63, 1))])
def test_sizes_and_strides_that_torch_cannot_hold_are_refused(shape: tuple[int, ...], stride: tuple[int, ...]) -> None:
    blob = bytearray(0 if 0 in shape else 8)
    with pytest.raises(FormError, match=f"{len(blob)} bytes as torch"):
        unpacked(TensorForm("torch.float32", shape, stride), blob)


def test_one_place_does_not_stand_for_more_elements_than_are_possible() -> None:
    with pytest.raises(FormError, match="larger than is possible"):
        unpacked(TensorForm("torch.float32", (2**60,), (0,)), bytearray(4), most=1e6)


def test_a_dtype_that_this_torch_lacks_and_a_layout_that_does_not_cross_are_skips() -> None:
    with pytest.raises(Skip, match=r"torch\.load"):
        unpacked(TensorForm("torch.load", (1,), (1,)), bytearray(8))
    with pytest.raises(Skip, match=r"torch\.sparse_coo does not cross"):
        packed(torch.eye(2).to_sparse())


def test_a_result_arrives_with_all_that_is_no_tensor() -> None:
    x, y = torch.ones(1), torch.zeros(2)
    result = (x, [None, True, 3, 0.5, "name"], {"size": torch.Size([2, 1]), "z": 1 + 2j, "dtype": torch.float16}, y)

    def at(tensor: torch.Tensor) -> AtTensor | AtArgument:
        return AtTensor(0) if tensor is x else AtArgument("args.0")

    node = as_node(result, at)
    assert node == Fixed(
        [
            AtTensor(0),
            Items([None, True, 3, 0.5, "name"]),
            Members({"size": Size([2, 1]), "z": Complex(1.0, 2.0), "dtype": Dtype("torch.float16")}),
            AtArgument("args.0"),
        ]
    )
    found = from_node(node, [x], {"args.0": y})
    assert found[0] is x
    assert found[3] is y
    assert found[1:3] == result[1:3]
    assert type(found[2]["size"]) is torch.Size


def test_a_result_that_has_no_form_is_a_skip() -> None:
    with pytest.raises(Skip, match="of type Generator does not cross"):
        as_node([torch.Generator()], lambda tensor: AtTensor(0))


@pytest.mark.parametrize("node", [AtTensor(1), AtTensor(-1), Fixed([AtArgument("args.1")])])
def test_a_result_that_names_what_is_not_there_is_refused(node: Node) -> None:
    with pytest.raises(FormError):
        from_node(node, [torch.ones(1)], {})
