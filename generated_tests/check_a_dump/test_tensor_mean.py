"""torch.Tensor.mean as dump.json recorded it: 10 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_mean.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.mean.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=2.3194388631964102e-09,
                max=0.004091501235961914,
                mean=0.00041489730938337743,
                norm=0.01980261504650116,
                requires_grad=True,
            ),
            -1,
        ],
        kwargs={"keepdim": True},
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-2.1688568592071533,
                max=3.7062742710113525,
                mean=0.14833654463291168,
                norm=5.682999610900879,
            ),
        ],
    ),
    "Tensor.mean.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=4.4565240386873484e-11,
                max=0.0054361820220947266,
                mean=0.00048073180369101465,
                norm=0.023164479061961174,
                requires_grad=True,
            ),
            -1,
        ],
        kwargs={"keepdim": True},
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-2.265105724334717,
                max=0.712665319442749,
                mean=-0.09338703006505966,
                norm=2.9349334239959717,
            ),
        ],
    ),
    "Tensor.mean.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=2.6284396881237626e-10,
                max=0.0055811405181884766,
                mean=0.00048254328430630267,
                norm=0.0232184249907732,
                requires_grad=True,
            ),
            -1,
        ],
        kwargs={"keepdim": True},
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-4.020790100097656,
                max=1.9531530141830444,
                mean=-0.1225004494190216,
                norm=6.2448344230651855,
            ),
        ],
    ),
    "Tensor.mean.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=1.4551915228366852e-11,
                max=0.006334543228149414,
                mean=0.00051509850891307,
                norm=0.024980051442980766,
                requires_grad=True,
            ),
            -1,
        ],
        kwargs={"keepdim": True},
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-0.8383099436759949,
                max=2.0290307998657227,
                mean=0.11009079962968826,
                norm=2.7663018703460693,
            ),
        ],
    ),
    "Tensor.mean.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=2.3283064365386963e-08,
                max=0.0061800479888916016,
                mean=0.00051472446648404,
                norm=0.024907423183321953,
                requires_grad=True,
            ),
            -1,
        ],
        kwargs={"keepdim": True},
        outputs=[recorded.Tensor(torch.float32, (2, 12, 1))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=-15.795672416687012,
                max=6.663450717926025,
                mean=-2.514988422393799,
                norm=25.988872528076172,
            ),
        ],
    ),
}

FORWARD = [
    "Tensor.mean.0.forward",
    "Tensor.mean.1.forward",
    "Tensor.mean.2.forward",
    "Tensor.mean.3.forward",
    "Tensor.mean.4.forward",
]

BACKWARD = [
    "Tensor.mean.0.backward",
    "Tensor.mean.1.backward",
    "Tensor.mean.2.backward",
    "Tensor.mean.3.backward",
    "Tensor.mean.4.backward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.mean, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.Tensor.mean, CALLS, record, seed=SEED)
