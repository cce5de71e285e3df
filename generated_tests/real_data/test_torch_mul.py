"""torch.mul as dump.json recorded it: 2 records.

Tensors with a file= are read from there; the others are drawn.

Made by: pytest-msprobe generate dump.json --real-data
Run it:  pytest test_torch_mul.py --msprobe-device npu
"""

from math import nan

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Torch.mul.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (12,),
                min=nan,
                max=nan,
                mean=nan,
                norm=nan,
                finite_min=-2.0,
                finite_max=3.0000000054977558e38,
                file="tensors/Torch.mul.0.forward.input.0.pt",
            ),
            2.0,
        ],
        outputs=[recorded.Tensor(torch.float32, (12,))],
    ),
    "Torch.mul.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (3,),
                min=1.000000031374395e-22,
                max=5.0,
                mean=1.6666666269302368,
                norm=5.0,
                file="tensors/Torch.mul.1.forward.input.0.pt",
            ),
            1e-20,
        ],
        outputs=[recorded.Tensor(torch.float32, (3,))],
    ),
}

FORWARD = ["Torch.mul.0.forward", "Torch.mul.1.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.mul, CALLS, record, seed=SEED)
