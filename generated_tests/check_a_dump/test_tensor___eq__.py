"""torch.Tensor.__eq__ as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___eq__.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__eq__.0": recorded.Call(
        args=[recorded.Tensor(torch.int64, (2,), min=0, max=0), 0],
        outputs=[recorded.Tensor(torch.bool, (2,))],
    ),
}

FORWARD = ["Tensor.__eq__.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__eq__, CALLS, record, seed=SEED)
