"""torch.Tensor.mul_ as dump.json recorded it: 42 records.

Made by: pytest-msprobe generate dump.json
Run it:  pytest test_tensor_mul_.py --msprobe-device npu
"""

import pytest
import torch

from pytest_msprobe import recorded

# Drawn inputs depend on seed, record and argument alone.
SEED = 0

# Calls by name without direction, as recorded.
CALLS = {
    "Tensor.mul_.0": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=-0.07470703125,
                max=0.064453125,
                mean=-6.628036499023438e-05,
                norm=1.125,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
    "Tensor.mul_.1": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (96, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
    "Tensor.mul_.2": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.064453125,
                max=0.058349609375,
                mean=0.00054931640625,
                norm=0.65625,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.3": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.4": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.054931640625,
                max=0.078125,
                mean=0.0002994537353515625,
                norm=0.451171875,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.5": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.6": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.053955078125,
                max=0.061279296875,
                mean=0.000545501708984375,
                norm=0.458984375,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.7": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.8": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.061279296875,
                max=0.06787109375,
                mean=-7.82012939453125e-05,
                norm=0.6328125,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.9": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.10": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.0654296875,
                max=0.0595703125,
                mean=-8.392333984375e-05,
                norm=0.76171875,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.11": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.12": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.05908203125,
                max=0.059814453125,
                mean=0.0002689361572265625,
                norm=0.77734375,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.13": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.14": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=-0.06298828125,
                max=0.06396484375,
                mean=0.000446319580078125,
                norm=0.77734375,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.mul_.15": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32, 48), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.mul_.16": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.17": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.18": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.19": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.20": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.0595703125,
                max=0.06298828125,
                mean=0.0005645751953125,
                norm=0.65234375,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.21": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.22": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.0595703125,
                max=0.05517578125,
                mean=-0.00201416015625,
                norm=0.453125,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.23": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.24": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (16, 32),
                min=-0.06640625,
                max=0.060546875,
                mean=0.0012054443359375,
                norm=0.458984375,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.25": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (16, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (16, 32))],
    ),
    "Tensor.mul_.26": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 32),
                min=-0.07958984375,
                max=0.06787109375,
                mean=0.00019073486328125,
                norm=0.64453125,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.27": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 32))],
    ),
    "Tensor.mul_.28": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.0751953125,
                max=0.0712890625,
                mean=0.000904083251953125,
                norm=0.78515625,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.29": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.30": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (48, 32),
                min=-0.06396484375,
                max=0.07421875,
                mean=-0.000148773193359375,
                norm=0.76953125,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.31": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (48, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (48, 32))],
    ),
    "Tensor.mul_.32": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (32, 48),
                min=-0.080078125,
                max=0.072265625,
                mean=0.000667572021484375,
                norm=0.76953125,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.mul_.33": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32, 48), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32, 48))],
    ),
    "Tensor.mul_.34": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.35": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.36": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.37": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.38": recorded.Call(
        args=[
            recorded.Tensor(torch.bfloat16, (32,), min=1.0, max=1.0, mean=1.0, norm=5.65625, requires_grad=True),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.39": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (32,), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (32,))],
    ),
    "Tensor.mul_.40": recorded.Call(
        args=[
            recorded.Tensor(
                torch.bfloat16,
                (96, 32),
                min=-0.076171875,
                max=0.072265625,
                mean=0.0002765655517578125,
                norm=1.1171875,
                requires_grad=True,
            ),
            0.99999,
        ],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
    "Tensor.mul_.41": recorded.Call(
        args=[recorded.Tensor(torch.bfloat16, (96, 32), min=0.0, max=0.0, mean=0.0, norm=0.0), 0.999],
        outputs=[recorded.Tensor(torch.bfloat16, (96, 32))],
    ),
}

FORWARD = [
    "Tensor.mul_.0.forward",
    "Tensor.mul_.1.forward",
    "Tensor.mul_.2.forward",
    "Tensor.mul_.3.forward",
    "Tensor.mul_.4.forward",
    "Tensor.mul_.5.forward",
    "Tensor.mul_.6.forward",
    "Tensor.mul_.7.forward",
    "Tensor.mul_.8.forward",
    "Tensor.mul_.9.forward",
    "Tensor.mul_.10.forward",
    "Tensor.mul_.11.forward",
    "Tensor.mul_.12.forward",
    "Tensor.mul_.13.forward",
    "Tensor.mul_.14.forward",
    "Tensor.mul_.15.forward",
    "Tensor.mul_.16.forward",
    "Tensor.mul_.17.forward",
    "Tensor.mul_.18.forward",
    "Tensor.mul_.19.forward",
    "Tensor.mul_.20.forward",
    "Tensor.mul_.21.forward",
    "Tensor.mul_.22.forward",
    "Tensor.mul_.23.forward",
    "Tensor.mul_.24.forward",
    "Tensor.mul_.25.forward",
    "Tensor.mul_.26.forward",
    "Tensor.mul_.27.forward",
    "Tensor.mul_.28.forward",
    "Tensor.mul_.29.forward",
    "Tensor.mul_.30.forward",
    "Tensor.mul_.31.forward",
    "Tensor.mul_.32.forward",
    "Tensor.mul_.33.forward",
    "Tensor.mul_.34.forward",
    "Tensor.mul_.35.forward",
    "Tensor.mul_.36.forward",
    "Tensor.mul_.37.forward",
    "Tensor.mul_.38.forward",
    "Tensor.mul_.39.forward",
    "Tensor.mul_.40.forward",
    "Tensor.mul_.41.forward",
]


@pytest.mark.parametrize("record", FORWARD)
def test_forward(precision, record):
    precision.check_recorded(torch.Tensor.mul_, CALLS, record, seed=SEED)
