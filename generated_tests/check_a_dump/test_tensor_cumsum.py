"""torch.Tensor.cumsum as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_cumsum.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.cumsum.0": recorded.Call(
        args=[recorded.Tensor(torch.bool, (2, 12), min=False, max=False), -1],
        outputs=[recorded.Tensor(torch.int64, (2, 12))],
    ),
}

FORWARD = ["Tensor.cumsum.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.cumsum, CALLS, record, seed=SEED)
