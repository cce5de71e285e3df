"""Caches of keys and values, and the prolog of latent attention, against definitions that go token by token."""

from __future__ import annotations

import pytest
import torch

from tests.support.cann.agreement import assert_agrees
from tests.support.cann.examples.caches import EXAMPLES
from tests.support.cann.operators import caches as independent


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_golden_definition_agrees_with_an_independent_one(example: str) -> None:
    call = EXAMPLES[example](torch.Generator().manual_seed(1))
    assert_agrees(getattr(independent, example.partition("-")[0]), call)
