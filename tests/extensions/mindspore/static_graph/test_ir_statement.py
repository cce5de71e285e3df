"""Statements of a graph's text, as MindSpore 2.10 writes them."""

from __future__ import annotations

from typing import Any

import pytest

from msprobe_hooks.extensions.mindspore.static_graph.ir_statement import constant, parse_statement

TRANSPOSE = """\
  %15(equiv_29_CNode_56) = PrimFunc_Transpose(%14, (I64(0), I64(2), I64(1))) primitive_attrs: {IsFeatureMapInputList: \
(0, 1)} cnode_attrs: {checkpoint: Bool(1)} cnode_primal_attrs: {unique_id: "18550"}
      : (<Tensor[Float32], (2, 6, 16)>, <Tuple[Int64*3], TupleShape(NoShape, NoShape, NoShape), \
elements_use_flags={[const vector]{1, 1, 1}}>) -> (<Tensor[Float32], (2, 16, 6)>)
"""
CONVOLUTION = """\
  %5(equiv_7_output) = Conv2D(%3, %para2_conv.weight) {instance name: conv2d} primitive_attrs: {kernel_size: (3, 3), \
input_names: [x, w], pad_mode: "valid, or not", group: I64(1), eps: F32(1e-05)} cnode_attrs: {checkpoint: Bool(1)}
      : (<Tensor[Float32], (3, 4, 9, 9)>, <Ref[Tensor[Float32]], (8, 4, 3, 3), ref_key=conv.weight>) -> \
(<Tuple[Tensor[Float32]*2], TupleShape((3, 8, 7, 7), (8))>)
"""


def test_a_statement_shows_constants_and_shapes_by_slot() -> None:
    reported = parse_statement(TRANSPOSE)
    assert (reported.type, reported.constant(0), reported.constant(1), reported.constant(2)) == (
        "Transpose",
        None,
        (0, 2, 1),
        None,
    )
    assert (reported.inputs, reported.outputs) == (((2, 6, 16), None), ((2, 16, 6),))


def test_a_statement_shows_attributes_and_shapes_of_parameters() -> None:
    reported = parse_statement(CONVOLUTION)
    assert reported.operands == ("%3", "%para2_conv.weight")
    assert [reported.attribute(name) for name in ("kernel_size", "pad_mode", "group", "eps", "checkpoint")] == [
        (3, 3), "valid, or not", 1, 1e-05, None,
    ]  # fmt: skip
    assert (reported.inputs, reported.outputs) == (((3, 4, 9, 9), (8, 4, 3, 3)), (None,))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("I64(-1)", -1), ("F32(1e-05)", 1e-05), ("Bool(0)", False), ("(I64(1))", (1,)), ("()", ()), ("[2, 3]", (2, 3)),
        ("%3", None), ("(I64(1), %3)", None), ("Tensor(shape=[], dtype=Float32, value=1)", None), ("UMonad[U]", None),
    ],
)  # fmt: skip
def test_constants_are_distinguished_from_what_is_computed(text: str, value: Any) -> None:
    assert constant(text) == value


@pytest.mark.parametrize("text", ["", "Return(%3", "  %1(a) = X(((", "  %1(a) = X(%0) primitive_attrs: {a: (1, b"])
def test_what_was_cut_off_shows_what_is_there(text: str) -> None:
    assert parse_statement(text).outputs == ()
