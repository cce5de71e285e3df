"""torch.Tensor.add_ as dump.json recorded it: 21 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_add_.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.add_.0": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (96, 32), min=0.0, max=0.146484375, mean=0.007720947265625, norm=1.1484375),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
    "Tensor.add_.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=6.868503987789154e-09,
                max=0.000652313232421875,
                mean=6.29425048828125e-05,
                norm=0.002838134765625,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.add_.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=5.327165126800537e-07,
                max=0.000457763671875,
                mean=9.489059448242188e-05,
                norm=0.002685546875,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.add_.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=2.682209014892578e-05,
                max=0.06982421875,
                mean=0.0113525390625,
                norm=0.34765625,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.add_.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=8.702278137207031e-06,
                max=0.056640625,
                mean=0.00994873046875,
                norm=0.412109375,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.add_.5": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=3.841705620288849e-08,
                max=0.0054931640625,
                mean=0.000919342041015625,
                norm=0.046875,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.add_.6": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=7.599592208862305e-07,
                max=0.0054931640625,
                mean=0.00084686279296875,
                norm=0.043701171875,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.add_.7": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=4.33996319770813e-07,
                max=0.006591796875,
                mean=0.00092315673828125,
                norm=0.047607421875,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.add_.8": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=1.1920928955078125e-05,
                max=0.0027618408203125,
                mean=0.00089263916015625,
                norm=0.006744384765625,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.add_.9": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=2.905726432800293e-06,
                max=0.0004749298095703125,
                mean=0.0001811981201171875,
                norm=0.00124359130859375,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.add_.10": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=1.280568540096283e-09,
                max=0.000583648681640625,
                mean=8.106231689453125e-05,
                norm=0.0033721923828125,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.add_.11": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=4.470348358154297e-07,
                max=0.000518798828125,
                mean=0.0001068115234375,
                norm=0.0031585693359375,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.add_.12": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=4.00543212890625e-05,
                max=0.05859375,
                mean=0.0107421875,
                norm=0.330078125,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.add_.13": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=1.6689300537109375e-05,
                max=0.0361328125,
                mean=0.00750732421875,
                norm=0.3125,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.add_.14": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=3.5762786865234375e-07,
                max=0.00518798828125,
                mean=0.000843048095703125,
                norm=0.04345703125,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.add_.15": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=2.2798776626586914e-06,
                max=0.00537109375,
                mean=0.00087738037109375,
                norm=0.045166015625,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.add_.16": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=9.19681042432785e-09,
                max=0.005340576171875,
                mean=0.000904083251953125,
                norm=0.046630859375,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.add_.17": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=2.8133392333984375e-05,
                max=0.0020751953125,
                mean=0.00081634521484375,
                norm=0.005523681640625,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.add_.18": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=8.344650268554688e-06,
                max=0.000675201416015625,
                mean=0.0002079010009765625,
                norm=0.0015411376953125,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.add_.19": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=0.00011157989501953125,
                max=0.0106201171875,
                mean=0.0036468505859375,
                norm=0.02587890625,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.add_.20": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=2.5779008865356445e-06,
                max=0.1650390625,
                mean=0.010009765625,
                norm=1.1953125,
            ),
            1e-08,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
}

FORWARD = [
    "Tensor.add_.0.forward",
    "Tensor.add_.1.forward",
    "Tensor.add_.2.forward",
    "Tensor.add_.3.forward",
    "Tensor.add_.4.forward",
    "Tensor.add_.5.forward",
    "Tensor.add_.6.forward",
    "Tensor.add_.7.forward",
    "Tensor.add_.8.forward",
    "Tensor.add_.9.forward",
    "Tensor.add_.10.forward",
    "Tensor.add_.11.forward",
    "Tensor.add_.12.forward",
    "Tensor.add_.13.forward",
    "Tensor.add_.14.forward",
    "Tensor.add_.15.forward",
    "Tensor.add_.16.forward",
    "Tensor.add_.17.forward",
    "Tensor.add_.18.forward",
    "Tensor.add_.19.forward",
    "Tensor.add_.20.forward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.add_, CALLS, record, seed=SEED)
