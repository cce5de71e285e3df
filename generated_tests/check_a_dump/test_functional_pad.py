"""torch.nn.functional.pad as dump.json recorded it: 1 record.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_functional_pad.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.pad.0": recorded.Call(
        args=[recorded.Tensor(torch.int64, (2, 12), min=0, max=92), [0, 1]],
        kwargs={"value": -100},
        outputs=[recorded.Tensor(torch.int64, (2, 13))],
    ),
}

FORWARD = ["Functional.pad.0.forward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.pad, CALLS, record, seed=SEED)
