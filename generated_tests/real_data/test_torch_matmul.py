"""torch.matmul as dump.json recorded it: 1 record.

Tensors with a file= are read from there; the others are drawn.

Made by: pytest-msprobe generate dump.json --real-data
Run it:  pytest test_torch_matmul.py --msprobe-device npu
"""

from math import inf, nan

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Torch.matmul.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (3, 2),
                min=nan,
                max=nan,
                mean=nan,
                norm=nan,
                finite_min=1.0,
                finite_max=1.0000000150474662e30,
                file="tensors/Torch.matmul.0.forward.input.0.pt",
            ),
            recorded.Tensor(
                torch.float32,
                (2, 2),
                min=1.0,
                max=1.0000000150474662e30,
                mean=2.5000000376186655e29,
                norm=inf,
                file="tensors/Torch.matmul.0.forward.input.1.pt",
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (3, 2))],
    ),
}

FORWARD = ["Torch.matmul.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.matmul, CALLS, record, seed=SEED)
