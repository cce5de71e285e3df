"""torch.nn.functional.softmax as dump.json recorded it: 1 record.

Tensors with a file= are read from there; the others are drawn.

Made by: pytest-msprobe generate dump.json --real-data
Run it:  pytest test_functional_softmax.py --msprobe-device npu
"""

from math import inf, nan

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.softmax.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (3, 3),
                min=-inf,
                max=inf,
                mean=nan,
                norm=inf,
                finite_min=0.0,
                finite_max=120.0,
                file="tensors/Functional.softmax.0.forward.input.0.pt",
            ),
            -1,
        ],
        outputs=[recorded.Tensor(torch.float32, (3, 3))],
    ),
}

FORWARD = ["Functional.softmax.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.softmax, CALLS, record, seed=SEED)
