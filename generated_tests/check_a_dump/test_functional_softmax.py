"""torch.nn.functional.softmax as dump.json recorded it: 4 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_functional_softmax.py --msprobe-device npu
"""

from math import inf

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.softmax.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-3.3895313892515355e38,
                max=0.03857421875,
                mean=-inf,
                norm=inf,
                requires_grad=True,
            ),
        ],
        kwargs={"dim": -1, "dtype": torch.float32},
        outputs=[recorded.Tensor(torch.float32, (2, 4, 12, 12))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 4, 12, 12),
                min=-0.00628662109375,
                max=0.005584716796875,
                mean=3.984980594395893e-06,
                norm=0.04277027025818825,
            ),
        ],
    ),
    "Functional.softmax.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-3.3895313892515355e38,
                max=0.04296875,
                mean=-inf,
                norm=inf,
                requires_grad=True,
            ),
        ],
        kwargs={"dim": -1, "dtype": torch.float32},
        outputs=[recorded.Tensor(torch.float32, (2, 4, 12, 12))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 4, 12, 12),
                min=-0.006439208984375,
                max=0.0059814453125,
                mean=6.782770469726529e-06,
                norm=0.044008560478687286,
            ),
        ],
    ),
}

FORWARD = ["Functional.softmax.0.forward", "Functional.softmax.1.forward"]

BACKWARD = ["Functional.softmax.0.backward", "Functional.softmax.1.backward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.softmax, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.nn.functional.softmax, CALLS, record, seed=SEED)
