"""The operators that torch_npu adds, called on a card as the real package calls them."""

from __future__ import annotations

import pytest

from tests.support.npu import run_script

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("cards")]

CALLING = """
import torch
from tests.support.cann.calling import all_examples, failures
for name, error in failures():
    print(name, error.splitlines()[0])
"""


def test_torch_npu_calls_every_example_of_an_operator_and_its_gradient() -> None:
    assert run_script(CALLING) == ""
