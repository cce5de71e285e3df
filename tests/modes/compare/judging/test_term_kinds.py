"""Table by which a comparison, which does not load torch, knows the terms that the rows of operations name."""

from __future__ import annotations

from typing import get_args

import pytest

from pytest_msprobe.engine.replay.ops.traits import GradientTerms, Step, Terms
from pytest_msprobe.modes.compare.judging import culprits, gradient_scales, term_scales
from pytest_msprobe.modes.compare.judging.term_scales import last_word
from tests.support import term_kinds


def test_the_table_is_what_the_rows_say() -> None:
    written = term_kinds.FILE.read_text(encoding="utf-8")
    assert written == term_kinds.table(), "write it anew: python -m tests.support.term_kinds"


def test_each_kind_that_a_row_may_name_has_a_scale() -> None:
    assert {*get_args(Terms)} == term_scales.SCALES.keys()
    assert {*get_args(GradientTerms)} == gradient_scales.SCALES.keys()
    assert {*get_args(Step)} == culprits.SIZES.keys()


@pytest.mark.parametrize("field", ["terms", "gradient_terms", "step"])
def test_two_spellings_of_an_operation_have_the_same_terms(field: str) -> None:
    kinds: dict[str, set[str]] = {}
    for kind, operations in term_kinds.operations_by_kind(field).items():
        for operation in operations:
            kinds.setdefault(last_word(operation), set()).add(kind)
    assert {word: each for word, each in kinds.items() if len(each) > 1} == {}


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ("Tensor.__iadd__.0.forward", "addition"),
        ("Module.fc.Linear.forward.0", "product"),
        ("Functional.conv2d.3.forward", "product"),
        ("Kernel.Default/loss-op7_ReduceSum-op12.0.forward", "sum"),
        ("Mint.nn.functional.kl_div.0.forward", "divergence"),
    ],
)
def test_a_call_a_module_and_a_kernel_have_the_terms_of_their_operation(record: str, kind: str) -> None:
    assert term_scales.forward_scale(record) is term_scales.SCALES[kind]


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ("Torch.addmm.0.backward", "addend_and_product"),
        ("Functional.log_softmax.0.backward", "log_softmax"),
        ("Module.layers.0.LlamaRMSNorm.backward.0", "rms_norm"),
        ("Module.bn.BatchNorm2d.backward.0", "batch_norm"),
        ("Module.loss.BCEWithLogitsLoss.backward.0", "probability_loss"),
    ],
)
def test_a_backward_call_has_the_terms_of_its_operation(record: str, kind: str) -> None:
    assert gradient_scales.gradient_scale(record) is gradient_scales.SCALES[kind]


def test_a_layer_whose_name_ends_in_a_product_is_none() -> None:
    assert gradient_scales.gradient_scale("Module.fc.LoraLinear.backward.0") is None
