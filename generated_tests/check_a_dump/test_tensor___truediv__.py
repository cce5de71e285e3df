"""torch.Tensor.__truediv__ as dump.json recorded it: 21 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___truediv__.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__truediv__.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=0.0,
                max=0.004638671875,
                mean=0.000244140625,
                norm=0.036376953125,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
    "Tensor.__truediv__.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=2.1736923372372985e-10,
                max=2.0623207092285156e-05,
                mean=1.996755599975586e-06,
                norm=9.012222290039062e-05,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.__truediv__.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=1.6880221664905548e-08,
                max=1.4483928680419922e-05,
                mean=3.0100345611572266e-06,
                norm=8.535385131835938e-05,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.__truediv__.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=8.493661880493164e-07,
                max=0.0022125244140625,
                mean=0.00035858154296875,
                norm=0.01104736328125,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.__truediv__.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=2.7567148208618164e-07,
                max=0.00179290771484375,
                mean=0.0003147125244140625,
                norm=0.01300048828125,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.__truediv__.5": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=1.2150849215686321e-09,
                max=0.0001735687255859375,
                mean=2.9087066650390625e-05,
                norm=0.00148773193359375,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.__truediv__.6": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=2.3981556296348572e-08,
                max=0.0001735687255859375,
                mean=2.682209014892578e-05,
                norm=0.00138092041015625,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.__truediv__.7": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=1.3737007975578308e-08,
                max=0.00020885467529296875,
                mean=2.9206275939941406e-05,
                norm=0.00150299072265625,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.__truediv__.8": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=3.762543201446533e-07,
                max=8.726119995117188e-05,
                mean=2.8252601623535156e-05,
                norm=0.000213623046875,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.__truediv__.9": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=9.173527359962463e-08,
                max=1.5020370483398438e-05,
                mean=5.7220458984375e-06,
                norm=3.933906555175781e-05,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.__truediv__.10": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=4.0472514228895307e-11,
                max=1.8477439880371094e-05,
                mean=2.562999725341797e-06,
                norm=0.00010633468627929688,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.__truediv__.11": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=1.414446160197258e-08,
                max=1.6450881958007812e-05,
                mean=3.382563591003418e-06,
                norm=0.00010013580322265625,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.__truediv__.12": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=1.2665987014770508e-06,
                max=0.00185394287109375,
                mean=0.000339508056640625,
                norm=0.01043701171875,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.__truediv__.13": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=5.289912223815918e-07,
                max=0.0011444091796875,
                mean=0.00023746490478515625,
                norm=0.0098876953125,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.__truediv__.14": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=1.1292286217212677e-08,
                max=0.000164031982421875,
                mean=2.658367156982422e-05,
                norm=0.00138092041015625,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.__truediv__.15": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=7.217749953269958e-08,
                max=0.0001697540283203125,
                mean=2.777576446533203e-05,
                norm=0.00142669677734375,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.__truediv__.16": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=2.9103830456733704e-10,
                max=0.00016880035400390625,
                mean=2.86102294921875e-05,
                norm=0.00147247314453125,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.__truediv__.17": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=8.903443813323975e-07,
                max=6.580352783203125e-05,
                mean=2.586841583251953e-05,
                norm=0.00017452239990234375,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.__truediv__.18": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=2.644956111907959e-07,
                max=2.1338462829589844e-05,
                mean=6.586313247680664e-06,
                norm=4.887580871582031e-05,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.__truediv__.19": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=3.5315752029418945e-06,
                max=0.000335693359375,
                mean=0.00011539459228515625,
                norm=0.00081634521484375,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.__truediv__.20": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=8.149072527885437e-08,
                max=0.005218505859375,
                mean=0.000316619873046875,
                norm=0.037841796875,
            ),
            0.031622776601683805,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
}

FORWARD = [
    "Tensor.__truediv__.0.forward",
    "Tensor.__truediv__.1.forward",
    "Tensor.__truediv__.2.forward",
    "Tensor.__truediv__.3.forward",
    "Tensor.__truediv__.4.forward",
    "Tensor.__truediv__.5.forward",
    "Tensor.__truediv__.6.forward",
    "Tensor.__truediv__.7.forward",
    "Tensor.__truediv__.8.forward",
    "Tensor.__truediv__.9.forward",
    "Tensor.__truediv__.10.forward",
    "Tensor.__truediv__.11.forward",
    "Tensor.__truediv__.12.forward",
    "Tensor.__truediv__.13.forward",
    "Tensor.__truediv__.14.forward",
    "Tensor.__truediv__.15.forward",
    "Tensor.__truediv__.16.forward",
    "Tensor.__truediv__.17.forward",
    "Tensor.__truediv__.18.forward",
    "Tensor.__truediv__.19.forward",
    "Tensor.__truediv__.20.forward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__truediv__, CALLS, record, seed=SEED)
