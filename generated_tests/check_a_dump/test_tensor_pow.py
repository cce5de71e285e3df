"""torch.Tensor.pow as dump.json recorded it: 10 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_pow.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.pow.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.06396484375,
                max=0.0546875,
                mean=9.084679186344147e-05,
                norm=0.5644830465316772,
                requires_grad=True,
            ),
            2,
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.06777677685022354,
                max=0.11582107096910477,
                mean=0.004635517951101065,
                norm=1.004621982574463,
            ),
        ],
    ),
    "Tensor.pow.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.0732421875,
                max=0.07373046875,
                mean=0.0005601011216640472,
                norm=0.6076199412345886,
                requires_grad=True,
            ),
            2,
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.0707845538854599,
                max=0.022270791232585907,
                mean=-0.002918344922363758,
                norm=0.5188276767730713,
            ),
        ],
    ),
    "Tensor.pow.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.07470703125,
                max=0.07373046875,
                mean=0.0005576896364800632,
                norm=0.6087636947631836,
                requires_grad=True,
            ),
            2,
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.12564969062805176,
                max=0.06103603169322014,
                mean=-0.0038281388115137815,
                norm=1.1039412021636963,
            ),
        ],
    ),
    "Tensor.pow.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.0791015625,
                max=0.07958984375,
                mean=0.0002821336092893034,
                norm=0.6289639472961426,
                requires_grad=True,
            ),
            2,
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.02619718573987484,
                max=0.06340721249580383,
                mean=0.003440338186919689,
                norm=0.48901763558387756,
            ),
        ],
    ),
    "Tensor.pow.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.07861328125,
                max=0.07861328125,
                mean=0.00025949874543584883,
                norm=0.6287354826927185,
                requires_grad=True,
            ),
            2,
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.4936147630214691,
                max=0.2082328349351883,
                mean=-0.07859340310096741,
                norm=4.594226837158203,
            ),
        ],
    ),
}

FORWARD = [
    "Tensor.pow.0.forward",
    "Tensor.pow.1.forward",
    "Tensor.pow.2.forward",
    "Tensor.pow.3.forward",
    "Tensor.pow.4.forward",
]

BACKWARD = [
    "Tensor.pow.0.backward",
    "Tensor.pow.1.backward",
    "Tensor.pow.2.backward",
    "Tensor.pow.3.backward",
    "Tensor.pow.4.backward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.pow, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.Tensor.pow, CALLS, record, seed=SEED)
