"""torch.nn.functional.cross_entropy as dump.json recorded it: 2 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_functional_cross_entropy.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.cross_entropy.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (24, 96),
                min=-0.44140625,
                max=0.4765625,
                mean=0.0021268357522785664,
                norm=5.450343132019043,
                requires_grad=True,
            ),
            recorded.Tensor(torch.int64, (24,), min=-100, max=92),
        ],
        kwargs={"ignore_index": -100, "reduction": "mean"},
        outputs=[recorded.Tensor(torch.float32, ())],
        grad_outputs=[recorded.Tensor(torch.float32, (), min=1.0, max=1.0, mean=1.0, norm=1.0)],
    ),
}

FORWARD = ["Functional.cross_entropy.0.forward"]

BACKWARD = ["Functional.cross_entropy.0.backward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.cross_entropy, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.nn.functional.cross_entropy, CALLS, record, seed=SEED)
