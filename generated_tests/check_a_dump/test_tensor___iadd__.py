"""torch.Tensor.__iadd__ as dump.json recorded it: 21 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___iadd__.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__iadd__.0": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.1": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.2": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.3": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.4": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.5": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.6": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.7": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.8": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.9": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.10": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.11": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.12": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.13": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.14": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.15": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.16": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.17": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.18": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.19": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
    "Tensor.__iadd__.20": recorded.Call(
        args=[recorded.Tensor(torch.float32, (), min=0.0, max=0.0, mean=0.0, norm=0.0), 1],
        outputs=[recorded.Tensor(torch.float32, ())],
    ),
}

FORWARD = [
    "Tensor.__iadd__.0.forward",
    "Tensor.__iadd__.1.forward",
    "Tensor.__iadd__.2.forward",
    "Tensor.__iadd__.3.forward",
    "Tensor.__iadd__.4.forward",
    "Tensor.__iadd__.5.forward",
    "Tensor.__iadd__.6.forward",
    "Tensor.__iadd__.7.forward",
    "Tensor.__iadd__.8.forward",
    "Tensor.__iadd__.9.forward",
    "Tensor.__iadd__.10.forward",
    "Tensor.__iadd__.11.forward",
    "Tensor.__iadd__.12.forward",
    "Tensor.__iadd__.13.forward",
    "Tensor.__iadd__.14.forward",
    "Tensor.__iadd__.15.forward",
    "Tensor.__iadd__.16.forward",
    "Tensor.__iadd__.17.forward",
    "Tensor.__iadd__.18.forward",
    "Tensor.__iadd__.19.forward",
    "Tensor.__iadd__.20.forward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__iadd__, CALLS, record, seed=SEED)
