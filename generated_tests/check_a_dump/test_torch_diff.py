"""torch.diff as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_torch_diff.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Torch.diff.0": recorded.Call(
        args=[recorded.Tensor(torch.int64, (2, 12), min=0, max=11)],
        kwargs={"prepend": recorded.Tensor(torch.int64, (2, 1), min=-1, max=-1), "dim": -1},
        outputs=[recorded.Tensor(torch.int64, (2, 12))],
    ),
}

FORWARD = ["Torch.diff.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.diff, CALLS, record, seed=SEED)
