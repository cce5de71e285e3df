"""torch.Tensor.__le__ as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___le__.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__le__.0": recorded.Call(
        args=[
            recorded.Tensor(torch.int64, (1, 1, 1, 12), min=0, max=11),
            recorded.Tensor(torch.int64, (1, 1, 12, 1), min=0, max=11),
        ],
        outputs=[recorded.Tensor(torch.bool, (1, 1, 12, 12))],
    ),
}

FORWARD = ["Tensor.__le__.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__le__, CALLS, record, seed=SEED)
