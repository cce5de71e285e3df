"""torch.Tensor.all as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_all.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.all.0": recorded.Call(
        args=[recorded.Tensor(torch.bool, (2,), min=True, max=True)],
        outputs=[recorded.Tensor(torch.bool, ())],
    ),
}

FORWARD = ["Tensor.all.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.all, CALLS, record, seed=SEED)
