"""torch.matmul as dump.json recorded it: 8 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_torch_matmul.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Torch.matmul.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.361328125,
                max=0.3984375,
                mean=-0.005126953125,
                norm=3.171875,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 8, 12),
                min=-0.3203125,
                max=0.34765625,
                mean=-0.000888824462890625,
                norm=3.109375,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 12))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.000331878662109375,
                max=0.0003070831298828125,
                mean=8.185452315956354e-10,
                norm=0.00147247314453125,
            ),
        ],
    ),
    "Torch.matmul.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=0.0,
                max=1.0,
                mean=0.08349609375,
                norm=4.96875,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.294921875,
                max=0.416015625,
                mean=0.011474609375,
                norm=3.109375,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 8))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.01220703125,
                max=0.01397705078125,
                mean=-5.751848220825195e-06,
                norm=0.1171875,
            ),
        ],
    ),
    "Torch.matmul.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.34765625,
                max=0.388671875,
                mean=-1.6167759895324707e-06,
                norm=3.15625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 8, 12),
                min=-0.314453125,
                max=0.259765625,
                mean=0.0017242431640625,
                norm=3.03125,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 12))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.0004291534423828125,
                max=0.0004291534423828125,
                mean=1.7826096154749393e-10,
                norm=0.001861572265625,
            ),
        ],
    ),
    "Torch.matmul.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=0.0,
                max=1.0,
                mean=0.08349609375,
                norm=4.96875,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.30078125,
                max=0.34375,
                mean=-0.00262451171875,
                norm=2.953125,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 8))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.01458740234375,
                max=0.016357421875,
                mean=5.5789947509765625e-05,
                norm=0.11767578125,
            ),
        ],
    ),
}

FORWARD = ["Torch.matmul.0.forward", "Torch.matmul.1.forward", "Torch.matmul.2.forward", "Torch.matmul.3.forward"]

BACKWARD = ["Torch.matmul.0.backward", "Torch.matmul.1.backward", "Torch.matmul.2.backward", "Torch.matmul.3.backward"]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.matmul, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.matmul, CALLS, record, seed=SEED)
