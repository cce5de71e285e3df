"""torch.Tensor.__ne__ as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___ne__.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__ne__.0": recorded.Call(
        args=[recorded.Tensor(torch.int64, (2, 12), min=1, max=1), 1],
        outputs=[recorded.Tensor(torch.bool, (2, 12))],
    ),
}

FORWARD = ["Tensor.__ne__.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__ne__, CALLS, record, seed=SEED)
