"""The lightning indexer and its loss against loops, and by numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from tests.support.cann.agreement import assert_agrees
from tests.support.cann.examples.lightning_indexer import EXAMPLES
from tests.support.cann.operators import lightning_indexer as independent


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_reference_agrees_with_loops(example: str) -> None:
    call = EXAMPLES[example](torch.Generator().manual_seed(7))
    assert_agrees(getattr(independent, example.partition("-")[0]), call)
