"""torch.Tensor.sqrt as dump.json recorded it: 21 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_sqrt.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.sqrt.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=0.0,
                max=2.1457672119140625e-05,
                mean=4.284083843231201e-07,
                norm=9.1552734375e-05,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
    "Tensor.sqrt.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=4.7222086809427244e-20,
                max=4.256435204297304e-10,
                mean=7.901235221652314e-12,
                norm=7.494236342608929e-10,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.sqrt.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=2.8449465006019636e-16,
                max=2.091837814077735e-10,
                mean=1.4154011296341196e-11,
                norm=5.711626727133989e-10,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.sqrt.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=7.212008767965017e-13,
                max=4.887580871582031e-06,
                mean=2.3748725652694702e-07,
                norm=1.233816146850586e-05,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.sqrt.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=7.593925488436071e-14,
                max=3.203749656677246e-06,
                mean=1.6577541828155518e-07,
                norm=1.0967254638671875e-05,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.sqrt.5": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=1.4772254600114998e-18,
                max=3.026798367500305e-08,
                mean=1.433363649994135e-09,
                norm=1.1362135410308838e-07,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.sqrt.6": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=5.724587470723463e-16,
                max=3.026798367500305e-08,
                mean=1.2441887520253658e-09,
                norm=1.0384246706962585e-07,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.sqrt.7": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=1.8821749714348357e-16,
                max=4.353933036327362e-08,
                mean=1.469743438065052e-09,
                norm=1.2479722499847412e-07,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.sqrt.8": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=1.4210854715202004e-13,
                max=7.62520357966423e-09,
                mean=1.4260876923799515e-09,
                norm=1.4319084584712982e-08,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.sqrt.9": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=8.43769498715119e-15,
                max=2.255546860396862e-10,
                mean=4.8203219193965197e-11,
                norm=4.220055416226387e-10,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.sqrt.10": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=1.641126335305207e-21,
                max=3.4015101846307516e-10,
                mean=1.1084466677857563e-11,
                norm=7.530616130679846e-10,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.sqrt.11": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=1.9949319973733282e-16,
                max=2.6921043172478676e-10,
                mean=1.944044925039634e-11,
                norm=8.62200977280736e-10,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.sqrt.12": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=1.6058265828178264e-12,
                max=3.427267074584961e-06,
                mean=2.1141022443771362e-07,
                norm=1.0609626770019531e-05,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.sqrt.13": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=2.788880237858393e-13,
                max=1.30385160446167e-06,
                mean=9.592622518539429e-08,
                norm=6.0498714447021484e-06,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.sqrt.14": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=1.2750217548429532e-16,
                max=2.6891939342021942e-08,
                mean=1.2369127944111824e-09,
                norm=1.0151416063308716e-07,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.sqrt.15": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=5.190292640122607e-15,
                max=2.8870999813079834e-08,
                mean=1.331500243395567e-09,
                norm=1.0896474123001099e-07,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.sqrt.16": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=8.470329472543003e-20,
                max=2.852175384759903e-08,
                mean=1.4115357771515846e-09,
                norm=1.1688098311424255e-07,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.sqrt.17": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=7.922551503725117e-13,
                max=4.307366907596588e-09,
                mean=9.531504474580288e-10,
                norm=8.207280188798904e-09,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.sqrt.18": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=6.972200594645983e-14,
                max=4.5656634029001e-10,
                mean=7.457856554538012e-11,
                norm=7.421476766467094e-10,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.sqrt.19": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32,),
                min=1.2448708730516955e-11,
                max=1.126900315284729e-07,
                mean=2.0954757928848267e-08,
                norm=1.8812716007232666e-07,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.sqrt.20": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=6.63358257213531e-15,
                max=2.7179718017578125e-05,
                mean=4.6566128730773926e-07,
                norm=9.34600830078125e-05,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
}

FORWARD = [
    "Tensor.sqrt.0.forward",
    "Tensor.sqrt.1.forward",
    "Tensor.sqrt.2.forward",
    "Tensor.sqrt.3.forward",
    "Tensor.sqrt.4.forward",
    "Tensor.sqrt.5.forward",
    "Tensor.sqrt.6.forward",
    "Tensor.sqrt.7.forward",
    "Tensor.sqrt.8.forward",
    "Tensor.sqrt.9.forward",
    "Tensor.sqrt.10.forward",
    "Tensor.sqrt.11.forward",
    "Tensor.sqrt.12.forward",
    "Tensor.sqrt.13.forward",
    "Tensor.sqrt.14.forward",
    "Tensor.sqrt.15.forward",
    "Tensor.sqrt.16.forward",
    "Tensor.sqrt.17.forward",
    "Tensor.sqrt.18.forward",
    "Tensor.sqrt.19.forward",
    "Tensor.sqrt.20.forward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.sqrt, CALLS, record, seed=SEED)
