"""torch.where as dump.json recorded it: 1 record.

Tensors with a file= are read from there; the others are drawn.

Made by: pytest-msprobe generate dump.json --real-data
Run it:  pytest test_torch_where.py --msprobe-device npu
"""

from math import nan

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Torch.where.0": recorded.Call(
        args=[
            recorded.Tensor(torch.bool, (12,), min=False, max=True, file="tensors/Torch.where.0.forward.input.0.pt"),
            recorded.Tensor(
                torch.float32,
                (12,),
                min=nan,
                max=nan,
                mean=nan,
                norm=nan,
                finite_min=-2.0,
                finite_max=3.0000000054977558e38,
                file="tensors/Torch.where.0.forward.input.1.pt",
            ),
            recorded.Tensor(
                torch.float32,
                (12,),
                min=nan,
                max=nan,
                mean=nan,
                norm=nan,
                finite_min=-3.0000000054977558e38,
                finite_max=2.0,
                file="tensors/Torch.where.0.forward.input.2.pt",
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (12,))],
    ),
}

FORWARD = ["Torch.where.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.where, CALLS, record, seed=SEED)
