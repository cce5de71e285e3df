"""torch.nn.functional.linear as dump.json recorded it: 30 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_functional_linear.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Functional.linear.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.96875,
                max=2.828125,
                mean=0.005950927734375,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.064453125,
                max=0.058349609375,
                mean=0.00054931640625,
                norm=0.65625,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.00014495849609375,
                max=0.0001392364501953125,
                mean=1.0803341865539551e-07,
                norm=0.000514984130859375,
            ),
        ],
    ),
    "Functional.linear.1": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.96875,
                max=2.828125,
                mean=0.005950927734375,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.054931640625,
                max=0.078125,
                mean=0.0002994537353515625,
                norm=0.451171875,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 16))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 16),
                min=-8.96453857421875e-05,
                max=8.440017700195312e-05,
                mean=-3.91155481338501e-07,
                norm=0.00046539306640625,
            ),
        ],
    ),
    "Functional.linear.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.96875,
                max=2.828125,
                mean=0.005950927734375,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.053955078125,
                max=0.061279296875,
                mean=0.000545501708984375,
                norm=0.458984375,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 16))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 16),
                min=-0.0234375,
                max=0.01239013671875,
                mean=-1.1622905731201172e-05,
                norm=0.059326171875,
            ),
        ],
    ),
    "Functional.linear.3": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.294921875,
                max=0.234375,
                mean=0.0111083984375,
                norm=1.59375,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.061279296875,
                max=0.06787109375,
                mean=-7.82012939453125e-05,
                norm=0.6328125,
                requires_grad=True,
            ),
            None,
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
    "Functional.linear.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.953125,
                max=2.703125,
                mean=0.0289306640625,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.0654296875,
                max=0.0595703125,
                mean=-8.392333984375e-05,
                norm=0.76171875,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.00151824951171875,
                max=0.0014495849609375,
                mean=-1.055002212524414e-05,
                norm=0.00823974609375,
            ),
        ],
    ),
    "Functional.linear.5": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.953125,
                max=2.703125,
                mean=0.0289306640625,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.05908203125,
                max=0.059814453125,
                mean=0.0002689361572265625,
                norm=0.77734375,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.0015716552734375,
                max=0.001312255859375,
                mean=-3.4868717193603516e-06,
                norm=0.0078125,
            ),
        ],
    ),
    "Functional.linear.6": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.038330078125,
                max=0.033447265625,
                mean=0.00016307830810546875,
                norm=0.216796875,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=-0.06298828125,
                max=0.06396484375,
                mean=0.000446319580078125,
                norm=0.77734375,
                requires_grad=True,
            ),
            None,
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
    "Functional.linear.7": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.984375,
                max=2.671875,
                mean=0.02880859375,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.0595703125,
                max=0.06298828125,
                mean=0.0005645751953125,
                norm=0.65234375,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 32))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.00010347366333007812,
                max=0.00011444091796875,
                mean=5.289912223815918e-07,
                norm=0.0006103515625,
            ),
        ],
    ),
    "Functional.linear.8": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.984375,
                max=2.671875,
                mean=0.02880859375,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.0595703125,
                max=0.05517578125,
                mean=-0.00201416015625,
                norm=0.453125,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 16))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 16),
                min=-0.00017452239990234375,
                max=0.00014972686767578125,
                mean=-5.252659320831299e-07,
                norm=0.000591278076171875,
            ),
        ],
    ),
    "Functional.linear.9": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.984375,
                max=2.671875,
                mean=0.02880859375,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.06640625,
                max=0.060546875,
                mean=0.0012054443359375,
                norm=0.458984375,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 16))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 16),
                min=-0.009033203125,
                max=0.01708984375,
                mean=0.00011110305786132812,
                norm=0.05078125,
            ),
        ],
    ),
    "Functional.linear.10": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-0.2109375,
                max=0.2080078125,
                mean=0.0037994384765625,
                norm=1.46875,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.07958984375,
                max=0.06787109375,
                mean=0.00019073486328125,
                norm=0.64453125,
                requires_grad=True,
            ),
            None,
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
    "Functional.linear.11": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.875,
                max=2.65625,
                mean=0.0166015625,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.0751953125,
                max=0.0712890625,
                mean=0.000904083251953125,
                norm=0.78515625,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.00138092041015625,
                max=0.001251220703125,
                mean=-5.781650543212891e-06,
                norm=0.00787353515625,
            ),
        ],
    ),
    "Functional.linear.12": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.875,
                max=2.65625,
                mean=0.0166015625,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.06396484375,
                max=0.07421875,
                mean=-0.000148773193359375,
                norm=0.76953125,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 48))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.0015411376953125,
                max=0.002044677734375,
                mean=3.0994415283203125e-06,
                norm=0.0081787109375,
            ),
        ],
    ),
    "Functional.linear.13": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 48),
                min=-0.0390625,
                max=0.041259765625,
                mean=-0.0002841949462890625,
                norm=0.21875,
                requires_grad=True,
                stride=(576, 48, 1),
            ),
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=-0.080078125,
                max=0.072265625,
                mean=0.000667572021484375,
                norm=0.76953125,
                requires_grad=True,
            ),
            None,
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
    "Functional.linear.14": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 32),
                min=-2.890625,
                max=2.6875,
                mean=0.01556396484375,
                norm=27.625,
                requires_grad=True,
            ),
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=-0.076171875,
                max=0.072265625,
                mean=0.0002765655517578125,
                norm=1.1171875,
                requires_grad=True,
            ),
            None,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (2, 12, 96))],
        grad_outputs=[
            recorded.Tensor(
                torch.bfloat16,
                (2, 12, 96),
                min=-0.045166015625,
                max=0.000743865966796875,
                mean=4.917383193969727e-07,
                norm=0.2119140625,
            ),
        ],
    ),
}

FORWARD = [
    "Functional.linear.0.forward",
    "Functional.linear.1.forward",
    "Functional.linear.2.forward",
    "Functional.linear.3.forward",
    "Functional.linear.4.forward",
    "Functional.linear.5.forward",
    "Functional.linear.6.forward",
    "Functional.linear.7.forward",
    "Functional.linear.8.forward",
    "Functional.linear.9.forward",
    "Functional.linear.10.forward",
    "Functional.linear.11.forward",
    "Functional.linear.12.forward",
    "Functional.linear.13.forward",
    "Functional.linear.14.forward",
]

BACKWARD = [
    "Functional.linear.0.backward",
    "Functional.linear.1.backward",
    "Functional.linear.2.backward",
    "Functional.linear.3.backward",
    "Functional.linear.4.backward",
    "Functional.linear.5.backward",
    "Functional.linear.6.backward",
    "Functional.linear.7.backward",
    "Functional.linear.8.backward",
    "Functional.linear.9.backward",
    "Functional.linear.10.backward",
    "Functional.linear.11.backward",
    "Functional.linear.12.backward",
    "Functional.linear.13.backward",
    "Functional.linear.14.backward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.nn.functional.linear, CALLS, record, seed=SEED)


@pytest.mark.parametrize("record", BACKWARD)
def test_backward(precision, record):
    precision.check_recorded(torch.nn.functional.linear, CALLS, record, seed=SEED)
