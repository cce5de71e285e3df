"""Sparse, block sparse and Floyd attention and ring attention against loops, and by numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from tests.support.cann.agreement import assert_agrees
from tests.support.cann.examples.sparse_attention import EXAMPLES
from tests.support.cann.operators import sparse_attention as independent


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_reference_agrees_with_loops(example: str) -> None:
    call = EXAMPLES[example](torch.Generator().manual_seed(7))
    assert_agrees(getattr(independent, example.partition("-")[0]), call)
