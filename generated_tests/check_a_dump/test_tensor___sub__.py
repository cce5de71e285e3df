"""torch.Tensor.__sub__ as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___sub__.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__sub__.0": recorded.Call(
        args=[recorded.Tensor(torch.int64, (2, 1), min=0, max=0), 1],
        outputs=[recorded.Tensor(torch.int64, (2, 1))],
    ),
}

FORWARD = ["Tensor.__sub__.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__sub__, CALLS, record, seed=SEED)
