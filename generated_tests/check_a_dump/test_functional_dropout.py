"""torch.nn.functional.dropout as dump.json recorded it: 2 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_functional_dropout.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.dropout.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=0.0,
                max=1.0,
                mean=0.08349609375,
                norm=4.96875,
                requires_grad=True,
            ),
        ],
        kwargs={"p": 0.0, "training": True},
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 12))],
    ),
    "Functional.dropout.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=0.0,
                max=1.0,
                mean=0.08349609375,
                norm=4.96875,
                requires_grad=True,
            ),
        ],
        kwargs={"p": 0.0, "training": True},
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 12))],
    ),
}

FORWARD = ["Functional.dropout.0.forward", "Functional.dropout.1.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.dropout, CALLS, record, seed=SEED)
