"""torch.rsqrt as dump.json recorded it: 10 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_torch_rsqrt.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Torch.rsqrt.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.00023247515491675586,
                max=0.0006632632575929165,
                mean=0.0004158972587902099,
                norm=0.0021010383497923613,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-3.784873115364462e-05,
                max=2.6132634957320988e-05,
                mean=-1.7953640281120897e-06,
                norm=7.387056393781677e-05,
            ),
        ],
    ),
    "Torch.rsqrt.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.00023476294882129878,
                max=0.0007575405761599541,
                mean=0.0004817317530978471,
                norm=0.002448671031743288,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-1.7579379345988855e-05,
                max=1.6295318346237764e-05,
                mean=5.776551574854238e-07,
                norm=4.1428178519709036e-05,
            ),
        ],
    ),
    "Torch.rsqrt.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.0002408907312201336,
                max=0.0007602237164974213,
                mean=0.00048354329192079604,
                norm=0.002458859933540225,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-7.03156110830605e-05,
                max=3.741022737813182e-05,
                mean=-3.488906486381893e-06,
                norm=0.00012483620957937092,
            ),
        ],
    ),
    "Torch.rsqrt.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.0002738609036896378,
                max=0.0009117001318372786,
                mean=0.0005160985165275633,
                norm=0.0026378934271633625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-1.8391354387858883e-05,
                max=1.8812854250427336e-05,
                mean=-9.129495879278693e-07,
                norm=4.7434190491912887e-05,
            ),
        ],
    ),
    "Torch.rsqrt.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.0002673081180546433,
                max=0.0009035329567268491,
                mean=0.0005157243576832116,
                norm=0.0026364540681242943,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-8.964678272604942e-05,
                max=0.0002218192967120558,
                mean=5.839203731738962e-05,
                norm=0.0004959375946782529,
            ),
        ],
    ),
}

FORWARD = [
    "Torch.rsqrt.0.forward",
    "Torch.rsqrt.1.forward",
    "Torch.rsqrt.2.forward",
    "Torch.rsqrt.3.forward",
    "Torch.rsqrt.4.forward",
]

BACKWARD = [
    "Torch.rsqrt.0.backward",
    "Torch.rsqrt.1.backward",
    "Torch.rsqrt.2.backward",
    "Torch.rsqrt.3.backward",
    "Torch.rsqrt.4.backward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.rsqrt, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.rsqrt, CALLS, record, seed=SEED)
