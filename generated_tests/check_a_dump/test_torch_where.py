"""torch.where as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_torch_where.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Torch.where.0": recorded.Call(
        args=[
            recorded.Tensor(torch.bool, (2, 1, 12, 12), min=False, max=True),
            recorded.Tensor(torch.bfloat16, (), min=0.0, max=0.0, mean=0.0, norm=0.0),
            -3.3895313892515355e38,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 1, 12, 12))],
    ),
}

FORWARD = ["Torch.where.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.where, CALLS, record, seed=SEED)
