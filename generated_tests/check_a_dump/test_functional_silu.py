"""torch.nn.functional.silu as dump.json recorded it: 4 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_functional_silu.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.silu.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.33984375,
                max=0.3515625,
                mean=0.00142669677734375,
                norm=3.734375,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.0031585693359375,
                max=0.002899169921875,
                mean=-2.205371856689453e-05,
                norm=0.0164794921875,
            ),
        ],
    ),
    "Functional.silu.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.322265625,
                max=0.37890625,
                mean=-0.005340576171875,
                norm=3.890625,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.0029144287109375,
                max=0.00244140625,
                mean=-1.055002212524414e-05,
                norm=0.0157470703125,
            ),
        ],
    ),
}

FORWARD = ["Functional.silu.0.forward", "Functional.silu.1.forward"]

BACKWARD = ["Functional.silu.0.backward", "Functional.silu.1.backward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.silu, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.nn.functional.silu, CALLS, record, seed=SEED)
