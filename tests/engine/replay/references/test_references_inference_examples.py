"""Attention of inference against a definition that computes one score at a time."""

from __future__ import annotations

import pytest
import torch

from tests.support.cann.agreement import assert_agrees
from tests.support.cann.examples.inference_attention import EXAMPLES
from tests.support.cann.operators import inference_attention as independent


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_golden_definition_agrees_with_an_independent_one(example: str) -> None:
    call = EXAMPLES[example](torch.Generator().manual_seed(1))
    assert_agrees(getattr(independent, example.partition("-")[0]), call)
