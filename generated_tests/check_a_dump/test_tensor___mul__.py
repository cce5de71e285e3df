"""torch.Tensor.__mul__ as dump.json recorded it: 47 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor___mul__.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.__mul__.0": recorded.Call(
        args=[
            recorded.Tensor(torch.float32, (1, 12, 1), min=0.0, max=11.0, mean=5.5, norm=22.494443893432617),
            recorded.Tensor(
                torch.float32,
                (4,),
                min=0.00099945068359375,
                max=1.0,
                mean=0.27777671813964844,
                norm=1.0050475597381592,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (1, 12, 4))],
    ),
    "Tensor.__mul__.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (1, 12, 8),
                min=-0.9899924993515015,
                max=1.0,
                mean=0.6914274096488953,
                norm=8.724600791931152,
            ),
            1.0,
        ],
        outputs=[recorded.Tensor(torch.float32, (1, 12, 8))],
    ),
    "Tensor.__mul__.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.float32,
                (1, 12, 8),
                min=-0.9999902248382568,
                max=0.9893582463264465,
                mean=0.14680485427379608,
                norm=4.458850383758545,
            ),
            1.0,
        ],
        outputs=[recorded.Tensor(torch.float32, (1, 12, 8))],
    ),
    "Tensor.__mul__.3": recorded.Call(
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
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=38.829071044921875,
                max=65.5860824584961,
                mean=50.13776779174805,
                norm=247.3882598876953,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.00128173828125,
                max=0.001373291015625,
                mean=-4.463164714252343e-06,
                norm=0.006346232257783413,
            ),
        ],
    ),
    "Tensor.__mul__.4": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.96875,
                max=2.828125,
                mean=0.005950927734375,
                norm=27.625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.00128173828125,
                max=0.001373291015625,
                mean=-4.470348358154297e-06,
                norm=0.00634765625,
            ),
        ],
    ),
    "Tensor.__mul__.5": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.341796875,
                max=0.400390625,
                mean=-0.010498046875,
                norm=3.171875,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-0.98828125, max=1.0, mean=0.69140625, norm=8.75),
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
    "Tensor.__mul__.6": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.357421875,
                max=0.400390625,
                mean=-0.0067138671875,
                norm=3.171875,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-1.0, max=0.98828125, mean=0.146484375, norm=4.46875),
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
    "Tensor.__mul__.7": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.3203125,
                max=0.353515625,
                mean=0.004913330078125,
                norm=2.203125,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-0.98828125, max=1.0, mean=0.69140625, norm=8.75),
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
    "Tensor.__mul__.8": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.33203125,
                max=0.353515625,
                mean=0.00080108642578125,
                norm=2.203125,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-1.0, max=0.98828125, mean=0.146484375, norm=4.46875),
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
    "Tensor.__mul__.9": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.1220703125,
                max=0.130859375,
                mean=-0.000812530517578125,
                norm=1.2109375,
                requires_grad=True,
            ),
            0.3535533905932738,
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
    "Tensor.__mul__.10": recorded.Call(
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
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=36.33264923095703,
                max=65.26573181152344,
                mean=46.901615142822266,
                norm=232.0540008544922,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.0001621246337890625,
                max=0.00015544891357421875,
                mean=2.716212065934087e-06,
                norm=0.0013452358543872833,
            ),
        ],
    ),
    "Tensor.__mul__.11": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.953125,
                max=2.703125,
                mean=0.0289306640625,
                norm=27.625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.0001621246337890625,
                max=0.00015544891357421875,
                mean=2.7120113372802734e-06,
                norm=0.0013427734375,
            ),
        ],
    ),
    "Tensor.__mul__.12": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.1416015625,
                max=0.2060546875,
                mean=0.00372314453125,
                norm=1.8828125,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.359375,
                max=0.35546875,
                mean=0.0021514892578125,
                norm=3.984375,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.0167236328125,
                max=0.01556396484375,
                mean=0.000278472900390625,
                norm=0.14453125,
            ),
        ],
    ),
    "Tensor.__mul__.13": recorded.Call(
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
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=36.26847457885742,
                max=64.4302749633789,
                mean=46.811248779296875,
                norm=231.5707244873047,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.000762939453125,
                max=0.00153350830078125,
                mean=1.5743027688586153e-05,
                norm=0.005651182495057583,
            ),
        ],
    ),
    "Tensor.__mul__.14": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.984375,
                max=2.671875,
                mean=0.02880859375,
                norm=27.625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.000762939453125,
                max=0.00153350830078125,
                mean=1.5735626220703125e-05,
                norm=0.005645751953125,
            ),
        ],
    ),
    "Tensor.__mul__.15": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.34375,
                max=0.34765625,
                mean=0.004119873046875,
                norm=3.15625,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-0.98828125, max=1.0, mean=0.69140625, norm=8.75),
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
    "Tensor.__mul__.16": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 8),
                min=-0.3359375,
                max=0.34765625,
                mean=0.00128936767578125,
                norm=3.15625,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-1.0, max=0.98828125, mean=0.146484375, norm=4.46875),
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
    "Tensor.__mul__.17": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.3125,
                max=0.259765625,
                mean=-0.001861572265625,
                norm=2.140625,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-0.98828125, max=1.0, mean=0.69140625, norm=8.75),
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
    "Tensor.__mul__.18": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 2, 12, 8),
                min=-0.259765625,
                max=0.3125,
                mean=0.0133056640625,
                norm=2.140625,
                requires_grad=True,
            ),
            recorded.Tensor(torch.bfloat16, (1, 1, 12, 8), min=-1.0, max=0.98828125, mean=0.146484375, norm=4.46875),
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
    "Tensor.__mul__.19": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 4, 12, 12),
                min=-0.11962890625,
                max=0.12451171875,
                mean=-0.0004062652587890625,
                norm=1.1953125,
                requires_grad=True,
            ),
            0.3535533905932738,
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
    "Tensor.__mul__.20": recorded.Call(
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
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=33.11875534057617,
                max=60.427547454833984,
                mean=45.42173385620117,
                norm=224.7823944091797,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.0002002716064453125,
                max=0.00014781951904296875,
                mean=-1.2043650485793478e-06,
                norm=0.001278139534406364,
            ),
        ],
    ),
    "Tensor.__mul__.21": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.875,
                max=2.65625,
                mean=0.0166015625,
                norm=27.625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.0002002716064453125,
                max=0.00014781951904296875,
                mean=-1.2069940567016602e-06,
                norm=0.00128173828125,
            ),
        ],
    ),
    "Tensor.__mul__.22": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.1357421875,
                max=0.224609375,
                mean=0.0005950927734375,
                norm=1.953125,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.37890625,
                max=0.400390625,
                mean=-0.0029754638671875,
                norm=3.765625,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.01519775390625,
                max=0.01611328125,
                mean=9.202957153320312e-05,
                norm=0.142578125,
            ),
        ],
    ),
    "Tensor.__mul__.23": recorded.Call(
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
            recorded.Tensor(
                torch.float32,
                (2, 12, 1),
                min=33.26810073852539,
                max=61.163726806640625,
                mean=45.464385986328125,
                norm=225.06292724609375,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.float32, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.float32,
                (2, 12, 32),
                min=-0.00262451171875,
                max=0.0027618408203125,
                mean=2.098805271089077e-05,
                norm=0.023329975083470345,
            ),
        ],
    ),
    "Tensor.__mul__.24": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.890625,
                max=2.6875,
                mean=0.01556396484375,
                norm=27.625,
                requires_grad=True,
            ),
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.00262451171875,
                max=0.0027618408203125,
                mean=2.09808349609375e-05,
                norm=0.0233154296875,
            ),
        ],
    ),
}

FORWARD = [
    "Tensor.__mul__.0.forward",
    "Tensor.__mul__.1.forward",
    "Tensor.__mul__.2.forward",
    "Tensor.__mul__.3.forward",
    "Tensor.__mul__.4.forward",
    "Tensor.__mul__.5.forward",
    "Tensor.__mul__.6.forward",
    "Tensor.__mul__.7.forward",
    "Tensor.__mul__.8.forward",
    "Tensor.__mul__.9.forward",
    "Tensor.__mul__.10.forward",
    "Tensor.__mul__.11.forward",
    "Tensor.__mul__.12.forward",
    "Tensor.__mul__.13.forward",
    "Tensor.__mul__.14.forward",
    "Tensor.__mul__.15.forward",
    "Tensor.__mul__.16.forward",
    "Tensor.__mul__.17.forward",
    "Tensor.__mul__.18.forward",
    "Tensor.__mul__.19.forward",
    "Tensor.__mul__.20.forward",
    "Tensor.__mul__.21.forward",
    "Tensor.__mul__.22.forward",
    "Tensor.__mul__.23.forward",
    "Tensor.__mul__.24.forward",
]

BACKWARD = [
    "Tensor.__mul__.3.backward",
    "Tensor.__mul__.4.backward",
    "Tensor.__mul__.5.backward",
    "Tensor.__mul__.6.backward",
    "Tensor.__mul__.7.backward",
    "Tensor.__mul__.8.backward",
    "Tensor.__mul__.9.backward",
    "Tensor.__mul__.10.backward",
    "Tensor.__mul__.11.backward",
    "Tensor.__mul__.12.backward",
    "Tensor.__mul__.13.backward",
    "Tensor.__mul__.14.backward",
    "Tensor.__mul__.15.backward",
    "Tensor.__mul__.16.backward",
    "Tensor.__mul__.17.backward",
    "Tensor.__mul__.18.backward",
    "Tensor.__mul__.19.backward",
    "Tensor.__mul__.20.backward",
    "Tensor.__mul__.21.backward",
    "Tensor.__mul__.22.backward",
    "Tensor.__mul__.23.backward",
    "Tensor.__mul__.24.backward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.__mul__, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.Tensor.__mul__, CALLS, record, seed=SEED)
