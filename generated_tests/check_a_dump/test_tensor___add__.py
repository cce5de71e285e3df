"""torch.Tensor.__add__ as dump.json recorded it: 33 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___add__.py --msprobe-device npu
"""

from math import inf

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__add__.0": recorded.Call(
        args=[recorded.Tensor(torch.int64, (12,), min=0, max=11), 0],
        outputs=[recorded.Tensor(torch.int64, (12,))],
    ),
    "Tensor.__add__.1": recorded.Call(
        args=[recorded.Tensor(torch.int64, (12,), min=0, max=11), 0],
        outputs=[recorded.Tensor(torch.int64, (12,))],
    ),
    "Tensor.__add__.2": recorded.Call(
        args=[recorded.Tensor(torch.int64, (12,), min=0, max=11), 0],
        outputs=[recorded.Tensor(torch.int64, (12,))],
    ),
    "Tensor.__add__.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.0002314751618541777,
                max=0.0006622632499784231,
                mean=0.00041489730938337743,
                norm=0.0020962876733392477,
                requires_grad=True,
            ),
            1e-06,
        ],
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
    "Tensor.__add__.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.3359375,
                max=0.396484375,
                mean=-0.0040283203125,
                norm=2.84375,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.2109375,
                max=0.2890625,
                mean=-0.00107574462890625,
                norm=1.390625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 8))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.00013828277587890625,
                max=0.00012969970703125,
                mean=7.59027898311615e-08,
                norm=0.000514984130859375,
            ),
        ],
    ),
    "Tensor.__add__.5": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.3203125,
                max=0.3515625,
                mean=0.000789642333984375,
                norm=1.96875,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.21484375,
                max=0.212890625,
                mean=-0.0016632080078125,
                norm=0.9765625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 2, 12, 8))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-8.96453857421875e-05,
                max=8.20159912109375e-05,
                mean=-7.741618901491165e-09,
                norm=0.00046539306640625,
            ),
        ],
    ),
    "Tensor.__add__.6": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.043212890625,
                max=0.04638671875,
                mean=-0.0002880096435546875,
                norm=0.4296875,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (2, 1, 12, 12), min=-3.3895313892515355e38, max=0.0, mean=-inf, norm=inf),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 12))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.00093841552734375,
                max=0.000865936279296875,
                mean=2.066371962428093e-09,
                norm=0.004180908203125,
            ),
        ],
    ),
    "Tensor.__add__.7": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.06396484375,
                max=0.0546875,
                mean=9.107589721679688e-05,
                norm=0.56640625,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.03369140625,
                max=0.0296630859375,
                mean=0.000469207763671875,
                norm=0.177734375,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.13671875,
                max=0.12890625,
                mean=0.0014495849609375,
                norm=1.0859375,
            ),
        ],
    ),
    "Tensor.__add__.8": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.00023376295575872064,
                max=0.0007565405685454607,
                mean=0.00048073174548335373,
                norm=0.0024439499247819185,
                requires_grad=True,
            ),
            1e-06,
        ],
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
    "Tensor.__add__.9": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.0732421875,
                max=0.07373046875,
                mean=0.000560760498046875,
                norm=0.609375,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.0022430419921875,
                max=0.0030975341796875,
                mean=-1.0654330253601074e-06,
                norm=0.0238037109375,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.1396484375,
                max=0.12451171875,
                mean=0.0013427734375,
                norm=1.0859375,
            ),
        ],
    ),
    "Tensor.__add__.10": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.00023989073815755546,
                max=0.0007592237088829279,
                mean=0.0004825432552024722,
                norm=0.0024541406892240047,
                requires_grad=True,
            ),
            1e-06,
        ],
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
    "Tensor.__add__.11": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.34375,
                max=0.29296875,
                mean=-0.0013580322265625,
                norm=2.828125,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.283203125,
                max=0.244140625,
                mean=0.0013580322265625,
                norm=1.40625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 8))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.00010728836059570312,
                max=0.00011444091796875,
                mean=1.5087425708770752e-07,
                norm=0.0006103515625,
            ),
        ],
    ),
    "Tensor.__add__.12": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.3125,
                max=0.259765625,
                mean=-0.003387451171875,
                norm=1.9375,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.1884765625,
                max=0.2333984375,
                mean=0.005126953125,
                norm=0.93359375,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 2, 12, 8))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.00017452239990234375,
                max=0.00014972686767578125,
                mean=-1.5133991837501526e-09,
                norm=0.000591278076171875,
            ),
        ],
    ),
    "Tensor.__add__.13": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.042236328125,
                max=0.0439453125,
                mean=-0.00014400482177734375,
                norm=0.423828125,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (2, 1, 12, 12), min=-3.3895313892515355e38, max=0.0, mean=-inf, norm=inf),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 4, 12, 12))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.00121307373046875,
                max=0.00121307373046875,
                mean=-1.6952981241047382e-09,
                norm=0.0052490234375,
            ),
        ],
    ),
    "Tensor.__add__.14": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.07470703125,
                max=0.07373046875,
                mean=0.00055694580078125,
                norm=0.609375,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.0289306640625,
                max=0.0230712890625,
                mean=-0.000274658203125,
                norm=0.14453125,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.11767578125,
                max=0.130859375,
                mean=0.000728607177734375,
                norm=1.0546875,
            ),
        ],
    ),
    "Tensor.__add__.15": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.0002728608960751444,
                max=0.0009107001242227852,
                mean=0.0005150985671207309,
                norm=0.002633197931572795,
                requires_grad=True,
            ),
            1e-06,
        ],
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
    "Tensor.__add__.16": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.0791015625,
                max=0.07958984375,
                mean=0.00028228759765625,
                norm=0.62890625,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.00286865234375,
                max=0.0030670166015625,
                mean=-2.181529998779297e-05,
                norm=0.023681640625,
                requires_grad=True,
                stride=(384, 32, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.12109375,
                max=0.12890625,
                mean=0.000812530517578125,
                norm=1.0546875,
            ),
        ],
    ),
    "Tensor.__add__.17": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=0.0002663081104401499,
                max=0.0009025329491123557,
                mean=0.0005147243500687182,
                norm=0.0026317595038563013,
                requires_grad=True,
            ),
            1e-06,
        ],
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
    "Tensor.__add__.0.forward",
    "Tensor.__add__.1.forward",
    "Tensor.__add__.2.forward",
    "Tensor.__add__.3.forward",
    "Tensor.__add__.4.forward",
    "Tensor.__add__.5.forward",
    "Tensor.__add__.6.forward",
    "Tensor.__add__.7.forward",
    "Tensor.__add__.8.forward",
    "Tensor.__add__.9.forward",
    "Tensor.__add__.10.forward",
    "Tensor.__add__.11.forward",
    "Tensor.__add__.12.forward",
    "Tensor.__add__.13.forward",
    "Tensor.__add__.14.forward",
    "Tensor.__add__.15.forward",
    "Tensor.__add__.16.forward",
    "Tensor.__add__.17.forward",
]

BACKWARD = [
    "Tensor.__add__.3.backward",
    "Tensor.__add__.4.backward",
    "Tensor.__add__.5.backward",
    "Tensor.__add__.6.backward",
    "Tensor.__add__.7.backward",
    "Tensor.__add__.8.backward",
    "Tensor.__add__.9.backward",
    "Tensor.__add__.10.backward",
    "Tensor.__add__.11.backward",
    "Tensor.__add__.12.backward",
    "Tensor.__add__.13.backward",
    "Tensor.__add__.14.backward",
    "Tensor.__add__.15.backward",
    "Tensor.__add__.16.backward",
    "Tensor.__add__.17.backward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__add__, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.Tensor.__add__, CALLS, record, seed=SEED)
