"""Peak memory and CPU time of large records with golden computed block by block, beside golden computed whole.

Each record is checked on the CPU, forward and backward, in processes of its own, by turns. ``tensors`` are the record's
own: arguments, results and gradients in their recorded dtype, which the check holds as drawn and on the device.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import by_turns, middle, run, table

Shape = tuple[int, ...]

# api, arguments (an integer shape first where there are indices), other arguments, result
RECORDS: Mapping[str, tuple[str, list[Shape], Shape]] = {
    "output projection": ("Functional.linear", [(1024, 4096), (32000, 4096)], (1024, 32000)),
    "embedding": ("Functional.embedding", [(1024,), (32000, 4096)], (1024, 4096)),
    "gelu": ("Functional.gelu", [(4096, 16384)], (4096, 16384)),
    "log_softmax": ("Functional.log_softmax", [(4096, 32000)], (4096, 32000)),
    "layer_norm": ("Functional.layer_norm", [(16384, 4096), (4096,), (4096,)], (16384, 4096)),
    "conv2d": ("Functional.conv2d", [(16, 64, 112, 112), (64, 64, 3, 3)], (16, 64, 112, 112)),
    "conv_transpose2d": ("Functional.conv_transpose2d", [(16, 128, 56, 56), (128, 64, 4, 4)], (16, 64, 112, 112)),
    "batch_norm": ("Functional.batch_norm", [(32, 64, 112, 112), (64,), (64,)], (32, 64, 112, 112)),
    "relu_": ("Tensor.relu_", [(32, 64, 112, 112)], (32, 64, 112, 112)),
    "attention": (
        "Functional.scaled_dot_product_attention",
        [(1, 32, 4096, 128)] * 3,
        (1, 32, 4096, 128),
    ),
}
# Golden of float32 is float64, in which torch copies the windows of a convolution side by side; else bfloat16.
DTYPES = {"conv2d": "float32", "conv_transpose2d": "float32", "batch_norm": "float32", "relu_": "float32"}
OPTIONS: Mapping[str, Mapping[str, object]] = {
    "log_softmax": {"dim": -1},
    "layer_norm": {"normalized_shape": [4096]},
    "conv2d": {"padding": 1},
    "conv_transpose2d": {"stride": 2, "padding": 1},
    "batch_norm": {"training": True},
    "attention": {"is_causal": True},
}
WAYS = ("whole", "blocks")


def check(name: str, way: str) -> None:
    """Check a record and print its verdicts and the MiB of its tensors."""
    from msprobe_hooks.dump.reader import read_dump
    from msprobe_standards import Policy
    from pytest_msprobe.devices.cpu import CpuDevice
    from pytest_msprobe.engine.frameworks.torch import TorchFramework
    from pytest_msprobe.engine.replay.call import read_call
    from pytest_msprobe.engine.replay.check import Replay
    from pytest_msprobe.engine.replay.partition.plan import RAISED_ABOVE
    from pytest_msprobe.engine.replay.trials.config import ReplayConfig
    from tests.support.dumps import forward, tensor, value, write_dump

    api, shapes, result = RECORDS[name]
    dtype = DTYPES.get(name, "bfloat16")
    kwargs = {option: value(each) for option, each in OPTIONS.get(name, {}).items()}
    given = [tensor(*shape, dtype=dtype, requires_grad=True) for shape in shapes]
    if name == "embedding":
        given[0] = tensor(*shapes[0], dtype="int64", low=0, high=shapes[1][0] - 1)
    if name == "batch_norm":
        given[1:] = [tensor(*shape, dtype=dtype, low=0.5, high=2.0) for shape in shapes[1:]]
    if name == "layer_norm":
        weights = dict(zip(("weight", "bias"), given[1:], strict=True))
        given, kwargs = given[:1], {**kwargs, **weights}
    output = [tensor(*result, dtype=dtype, low=-9.0, high=9.0)]
    records = {
        f"{api}.0.forward": forward(*given, output=output, **kwargs),
        f"{api}.0.backward": {"input": [tensor(*result, dtype=dtype)], "output": given},
    }
    with TemporaryDirectory() as folder:
        dump = read_dump(write_dump(Path(folder), records))
        call = read_call(dump, f"{api}.0.forward")
        # Attention of this size is not cut yet.
        above = RAISED_ABOVE // 4 if name == "attention" else RAISED_ABOVE
        setup = ReplayConfig(
            CpuDevice(), Policy.load("default"), TorchFramework(), raised_above=above if way == "blocks" else None
        )
        replay = Replay(call, setup)
        results = [replay.forward(), replay.backward()]
    in_blocks = "golden" not in vars(replay.trial)
    numels = [math.prod(shape) for shape in (*shapes, result)]
    bytes_of_each = {"bfloat16": 2, "float32": 4}[dtype]
    mib = 2 * bytes_of_each * sum(numels) // 2**20
    print(*(each.outcome for each in results), "blocks" if in_blocks else "whole", mib)


def main() -> None:
    """Take turns between both ways of each record, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("records", nargs="*", default=list(RECORDS), help="which records")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, metavar=("RECORD", "WAY"), help="check one record in this process")
    options = parser.parse_args()
    if options.one:
        check(*options.one)
        return
    rows = []
    for name in options.records:
        one = [sys.executable, __file__, "--one", name]
        done = by_turns({way: partial(run, [*one, way]) for way in WAYS}, options.rounds)
        for way, runs in done.items():
            found = middle(runs)
            *outcomes, ran, tensors = found.output.split()
            rows.append([name, ran, " ".join(outcomes), tensors, f"{found.peak:.0f}", f"{found.cpu:.1f}"])
            assert ran == way, (name, way, ran)
    print(table(["record", "golden", "verdicts", "tensors, MiB", "peak, MiB", "CPU seconds"], rows))


if __name__ == "__main__":
    main()
