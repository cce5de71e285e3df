"""torch.nn.functional.embedding as dump.json recorded it: 2 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_functional_embedding.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.embedding.0": recorded.Call(
        args=[
            recorded.Tensor(torch.int64, (2, 12), min=0, max=92),
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=-0.07470703125,
                max=0.064453125,
                mean=-6.628036499023438e-05,
                norm=1.125,
                requires_grad=True,
            ),
            None,
            None,
            2.0,
            False,
            False,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.1416015625,
                max=0.146484375,
                mean=0.00115966796875,
                norm=1.1484375,
            ),
        ],
    ),
}

FORWARD = ["Functional.embedding.0.forward"]

BACKWARD = ["Functional.embedding.0.backward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.embedding, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.nn.functional.embedding, CALLS, record, seed=SEED)
