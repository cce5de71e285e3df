"""torch.Tensor.sin as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_sin.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.sin.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (1, 12, 8),
                min=0.0,
                max=11.0,
                mean=1.5277719497680664,
                norm=31.972522735595703,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (1, 12, 8))],
    ),
}

FORWARD = ["Tensor.sin.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.sin, CALLS, record, seed=SEED)
