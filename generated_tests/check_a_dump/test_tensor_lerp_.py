"""torch.Tensor.lerp_ as dump.json recorded it: 21 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_lerp_.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.lerp_.0": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (96, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=-0.1416015625,
                max=0.146484375,
                mean=0.0002899169921875,
                norm=1.1484375,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
    "Tensor.lerp_.1": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.000392913818359375,
                max=0.000652313232421875,
                mean=4.377216100692749e-07,
                norm=0.002838134765625,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.lerp_.2": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.000457763671875,
                max=0.0003490447998046875,
                mean=-5.900859832763672e-06,
                norm=0.0027008056640625,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.lerp_.3": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.06982421875,
                max=0.0537109375,
                mean=1.233816146850586e-05,
                norm=0.34765625,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.lerp_.4": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.056640625,
                max=0.054443359375,
                mean=5.8650970458984375e-05,
                norm=0.412109375,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.lerp_.5": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.005340576171875,
                max=0.0054931640625,
                mean=-7.2479248046875e-05,
                norm=0.046875,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.lerp_.6": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.0054931640625,
                max=0.005340576171875,
                mean=-7.003545761108398e-07,
                norm=0.043701171875,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.lerp_.7": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32, 48), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=-0.006591796875,
                max=0.00567626953125,
                mean=1.9431114196777344e-05,
                norm=0.047607421875,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.lerp_.8": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=-0.0026397705078125,
                max=0.0027618408203125,
                mean=-7.390975952148438e-05,
                norm=0.006744384765625,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.lerp_.9": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=-0.0004749298095703125,
                max=0.000385284423828125,
                mean=3.0279159545898438e-05,
                norm=0.00124359130859375,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.lerp_.10": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.000583648681640625,
                max=0.00034332275390625,
                mean=2.1457672119140625e-06,
                norm=0.0033721923828125,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.lerp_.11": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.000518798828125,
                max=0.0004558563232421875,
                mean=-4.023313522338867e-06,
                norm=0.0031585693359375,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.lerp_.12": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.05859375,
                max=0.05859375,
                mean=0.000804901123046875,
                norm=0.330078125,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.lerp_.13": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.03125,
                max=0.0361328125,
                mean=0.0003643035888671875,
                norm=0.314453125,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.lerp_.14": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.005126953125,
                max=0.00518798828125,
                mean=6.377696990966797e-06,
                norm=0.043701171875,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.lerp_.15": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.004669189453125,
                max=0.00537109375,
                mean=8.106231689453125e-06,
                norm=0.045166015625,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.lerp_.16": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32, 48), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=-0.005340576171875,
                max=0.005279541015625,
                mean=1.1682510375976562e-05,
                norm=0.046630859375,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.lerp_.17": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=-0.00180816650390625,
                max=0.0020751953125,
                mean=-5.125999450683594e-05,
                norm=0.005523681640625,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.lerp_.18": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=-0.000675201416015625,
                max=0.00048065185546875,
                mean=-4.4345855712890625e-05,
                norm=0.00154876708984375,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.lerp_.19": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=-0.00750732421875,
                max=0.0106201171875,
                mean=0.00189971923828125,
                norm=0.02587890625,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.lerp_.20": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (96, 32), min=0.0, max=0.0, mean=0.0, norm=0.0),
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=-0.14453125,
                max=0.1650390625,
                mean=-1.3932585716247559e-06,
                norm=1.1953125,
            ),
            0.09999999999999998,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
}

FORWARD = [
    "Tensor.lerp_.0.forward",
    "Tensor.lerp_.1.forward",
    "Tensor.lerp_.2.forward",
    "Tensor.lerp_.3.forward",
    "Tensor.lerp_.4.forward",
    "Tensor.lerp_.5.forward",
    "Tensor.lerp_.6.forward",
    "Tensor.lerp_.7.forward",
    "Tensor.lerp_.8.forward",
    "Tensor.lerp_.9.forward",
    "Tensor.lerp_.10.forward",
    "Tensor.lerp_.11.forward",
    "Tensor.lerp_.12.forward",
    "Tensor.lerp_.13.forward",
    "Tensor.lerp_.14.forward",
    "Tensor.lerp_.15.forward",
    "Tensor.lerp_.16.forward",
    "Tensor.lerp_.17.forward",
    "Tensor.lerp_.18.forward",
    "Tensor.lerp_.19.forward",
    "Tensor.lerp_.20.forward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.lerp_, CALLS, record, seed=SEED)
