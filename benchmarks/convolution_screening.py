"""Screened checks of convolutions beside exact ones: verdicts, and CPU time.

``verdicts`` runs the planted faults and the correct devices of the corpus over convolutions of several kinds, each
record once exactly and once with everything screened. ``healthy`` screens the correct CPU under many seeds, kinds and
sizes. ``cost`` takes turns between both checks, forward and backward, by the number of channels.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from measure import table
from screening import DISTRIBUTIONS, DTYPES, POLICY, compared_all, drawing, turn

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.frameworks.torch import TorchFramework
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.results.screened import screened_of
from tests.support.dumps import Json, forward, tensor, value, write_dump

Kind = tuple[str, Sequence[int], Sequence[int], Mapping[str, int]]


def kinds(channels: int, side: int) -> dict[str, Kind]:
    """Return API, shapes of the input and of the weight, and keywords of each kind of call."""
    return {
        "padded": ("conv2d", (2, channels, side, side), (channels, channels, 3, 3), {"padding": 1}),
        "strided": (
            "conv2d",
            (2, channels, 2 * side, 2 * side),
            (channels, channels, 3, 3),
            {"padding": 1, "stride": 2},
        ),
        "pointwise and strided": (
            "conv2d",
            (2, channels, 2 * side, 2 * side),
            (channels, channels, 1, 1),
            {"stride": 2},
        ),
        "dilated": ("conv1d", (2, channels, side * side), (channels, channels, 5), {"padding": 8, "dilation": 4}),
        "grouped": (
            "conv2d",
            (2, 2 * channels, side, side),
            (2 * channels, channels, 3, 3),
            {"padding": 1, "groups": 2},
        ),
        "volume": ("conv3d", (1, channels, 3, side, side), (channels, channels, 3, 3, 3), {"padding": 1}),
        "transposed": (
            "conv_transpose2d",
            (2, channels, side, side),
            (channels, channels, 4, 4),
            {"padding": 1, "stride": 2},
        ),
    }


def chosen(options: argparse.Namespace, channels: int, side: int) -> dict[str, Kind]:
    found = kinds(channels, side)
    return {name: found[name] for name in options.kinds}


def calls(folder: Path, found: Mapping[str, Kind], dtypes: Sequence[str]) -> Iterator[Call]:
    """Write a dump of convolutions with their gradients, and yield its calls."""
    records: Json = {}
    for api, values, weight, options in found.values():
        operation = getattr(torch.nn.functional, api)
        bias = weight[1] * options.get("groups", 1) if "transpose" in api else weight[0]
        shape = operation(*(torch.empty(each, device="meta") for each in (values, weight, (bias,))), **options).shape
        for dtype in dtypes:
            given = [tensor(*each, dtype=dtype, requires_grad=True) for each in (values, weight, (bias,))]
            output = [tensor(*shape, dtype=dtype, low=-9.0, high=9.0)]
            name = f"Functional.{api}.{len(records) // 2}"
            keywords = {key: value(number) for key, number in options.items()}
            records[f"{name}.forward"] = forward(*given, output=output, **keywords)
            records[f"{name}.backward"] = {"input": [tensor(*shape, dtype=dtype)], "output": given}
    dump = read_dump(write_dump(folder, records))
    for name in records:
        if name.endswith("forward"):
            yield read_call(dump, name)


def verdicts(options: argparse.Namespace) -> None:
    """Print how screened verdicts agree with exact ones, by kind of variant."""
    with TemporaryDirectory() as folder:
        found = chosen(options, options.channels[0], options.side)
        compared_all(list(calls(Path(folder), found, options.dtypes)), options.seed)


def healthy(options: argparse.Namespace) -> None:
    """Print how many screened records of the correct CPU are cleared and how many fail, by kind."""
    counts: dict[tuple[str, str], list[int]] = {}
    for seed in range(options.seed, options.seed + options.seeds):
        generator = torch.Generator().manual_seed(seed)
        drawn = DISTRIBUTIONS[seed % len(DISTRIBUTIONS)]
        channels, side = (
            size + int(torch.randint(0, size, (), generator=generator)) for size in (options.channels[0], options.side)
        )
        found = chosen(options, channels, side)
        with TemporaryDirectory() as folder:
            names = [(name, dtype) for name in found for dtype in options.dtypes]
            for at, call in zip(names, calls(Path(folder), found, options.dtypes), strict=True):
                replay = Replay(
                    call,
                    ReplayConfig(CpuDevice(), POLICY, TorchFramework(), seed=seed, screen_above=0),
                    drawing(drawn, generator),
                )
                for result in (replay.forward(), replay.backward()):
                    count = counts.setdefault(at, [0, 0, 0])
                    count[0] += 1
                    count[1] += bool(screened_of(result.extras))
                    count[2] += result.verdict.outcome == "fail"
                    if result.verdict.outcome == "fail":
                        print(f"  {drawn.__name__}, seed {seed}, {result.record}: {result.verdict.reason}", flush=True)
    rows = [[*at, *map(str, count)] for at, count in counts.items()]
    print(table(["convolution", "dtype", "screened records", "cleared", "failed"], rows))


def cost(options: argparse.Namespace) -> None:
    """Print the CPU seconds of both checks, by turns, apart from drawing the inputs and from the target's runs."""
    torch.set_num_threads(1)
    rows = []
    for channels in options.channels:
        found = chosen(options, channels, options.side)
        with TemporaryDirectory() as folder:
            names = [(name, dtype) for name in found for dtype in options.dtypes]
            for (name, dtype), call in zip(names, calls(Path(folder), found, options.dtypes), strict=True):
                turns = [[turn(call, above) for above in (None, 0)] for _ in range(options.turns)]
                exact, screened = (
                    [statistics.median(each) for each in zip(*way, strict=True)] for way in zip(*turns, strict=True)
                )
                ratios = (exact[3] / screened[3], exact[4] / screened[4], sum(exact[3:]) / sum(screened[3:]))
                seconds = [f"{number:.2f}" for way in (exact, screened) for number in way[3:]]
                rows.append([name, str(channels), dtype, *seconds, *(f"{ratio:.1f}" for ratio in ratios)])
                print(" ".join(rows[-1]), flush=True)
    head = ["convolution", "channels", "dtype", "forward", "backward", "screened", "screened", "ratio", "ratio", "both"]
    print(table(head, rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("verdicts", "healthy", "cost"))
    parser.add_argument("--kinds", nargs="+", default=list(kinds(1, 1)), choices=list(kinds(1, 1)))
    parser.add_argument("--channels", type=int, nargs="+", default=[128])
    parser.add_argument("--side", type=int, default=16)
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--turns", type=int, default=1)
    options = parser.parse_args()
    {"verdicts": verdicts, "healthy": healthy, "cost": cost}[options.part](options)


if __name__ == "__main__":
    main()
