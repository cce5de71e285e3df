"""Screened checks of attention beside exact ones: verdicts, what one wrong element has to be off by, and CPU time.

``verdicts`` runs the planted faults and the correct devices of the corpus over attention of several kinds, each record
once exactly and once with everything screened. ``healthy`` screens the correct CPU under many seeds. ``element``
changes one element of a correct result. ``cost`` takes turns between both checks of causal attention, forward and
backward, beside drawing its inputs and the target's own runs; ``rows`` shows what the exact check of operations costs
that are judged by rows and are not screened.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from measure import table
from screening import DTYPES, POLICY, both_ways, compared_all, turn

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards.dtypes import float_format, roundoffs_allowed
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.frameworks.torch import TorchFramework
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.screening.attention import Attention
from pytest_msprobe.engine.replay.screening.attention_residuals import Summed, residuals
from pytest_msprobe.engine.replay.screening.attention_sketches import COLUMNS, Sums, drawn_sketches, summed
from pytest_msprobe.engine.replay.screening.residuals import Limits
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.results.screened import screened_of
from tests.support.dumps import Json, forward, tensor, value, write_dump

ATTENTION = "Functional.scaled_dot_product_attention"


def kinds(length: int, width: int) -> Mapping[str, tuple[tuple[int, int], Json]]:
    """Return the heads of queries and of keys of each kind of call, and its keywords."""
    return {
        "causal": ((8, 8), {"is_causal": value(True)}),
        "all keys": ((8, 8), {}),
        "shared keys": ((16, 8), {"is_causal": value(True), "enable_gqa": value(True)}),
        "masked": ((8, 8), {"attn_mask": tensor(1, 1, length, length, dtype="bool", low=False, high=True)}),
        "scaled": ((8, 8), {"scale": value(1 / width)}),
    }


def calls(folder: Path, options: argparse.Namespace) -> Iterator[Call]:
    """Write a dump of attention with its gradients, and yield its calls."""
    length, width, high = options.length, options.width, options.high
    records: Json = {}
    for (heads, groups), keywords in kinds(length, width).values():
        for dtype in options.dtypes:
            shapes = [(1, heads, length, width), (1, groups, length, width), (1, groups, length, width)]
            given = [tensor(*shape, dtype=dtype, low=-high, high=high, requires_grad=True) for shape in shapes]
            output = [tensor(*shapes[0], dtype=dtype, low=-high, high=high)]
            name = f"{ATTENTION}.{len(records) // 2}"
            records[f"{name}.forward"] = forward(*given, output=output, **keywords)
            records[f"{name}.backward"] = {"input": [tensor(*shapes[0], dtype=dtype)], "output": given}
    yield from read(folder, records)


def read(folder: Path, records: Json) -> Iterator[Call]:
    dump = read_dump(write_dump(folder, records))
    for name in records:
        if name.endswith("forward"):
            yield read_call(dump, name)


def verdicts(options: argparse.Namespace) -> None:
    """Print how screened verdicts agree with exact ones, by kind of variant."""
    with TemporaryDirectory() as folder:
        compared_all(list(calls(Path(folder), options)), options.seed)


def healthy(options: argparse.Namespace) -> None:
    """Print how many screened records of the correct CPU are cleared and how many fail."""
    with TemporaryDirectory() as folder:
        found = list(calls(Path(folder), options))
        cleared = failed = count = 0
        for seed in range(options.seed, options.seed + options.seeds):
            for call in found:
                for result in both_ways(
                    call, ReplayConfig(CpuDevice(), POLICY, TorchFramework(), seed=seed, screen_above=0)
                ):
                    count += 1
                    cleared += bool(screened_of(result.extras))
                    failed += result.verdict.outcome == "fail"
                    if not screened_of(result.extras):
                        print(f"  seed {seed}, {result.record}: checked exactly, {result.verdict.outcome}", flush=True)
        print(f"{count} screened records of operands up to {options.high}: {cleared} cleared, {failed} fail")


def element(options: argparse.Namespace) -> None:
    """Print from which error on, in units of u max(|o|, mean |o|), one wrong element is seen, beside the theory."""
    rows = []
    for name in DTYPES:
        dtype, generator = getattr(torch, name), torch.Generator().manual_seed(options.seed)
        shape = (1, 8, options.length, options.width)
        query, key, values = (torch.randn(shape, generator=generator).to(dtype) for _ in range(3))
        result = torch.nn.functional.scaled_dot_product_attention(query, key, values, is_causal=True)
        attention = Attention(query, key, values, ("", "", ""), None, is_causal=True, scale=options.width**-0.5)
        sketches = [drawn_sketches(attention, generator) for _ in attention.groups()]
        sums = [summed(attention, *each, None) for each in zip(attention.groups(), sketches, strict=True)]
        found = [seen_from(attention, sketches, sums, result, trial) for trial in range(options.trials)]
        tiles = -(-options.width // COLUMNS)
        limits = Limits(8 * (tiles * (options.length + -(-options.length // 128)) + options.length + 1) + 1)
        scale = result.float().abs().mean()
        weight = float(result.float().abs().clamp(min=scale).square().mean().sqrt() / scale)
        theory = math.sqrt(limits.of_one() * COLUMNS) * roundoffs_allowed(dtype) * weight
        numbers = (min(found), statistics.median(found), max(found), theory)
        rows.append([name, *(f"{number:.0f}" for number in numbers)])
    print(table(["dtype", "least", "median", "most", "theory"], rows))


def seen_from(attention: Attention, sketches: list[Any], sums: list[Sums], result: torch.Tensor, seed: int) -> float:
    """Return the least error, to a twentieth, by which one element stands out from limits that nothing widens."""
    scale, form = float(result.float().abs().mean()), float_format(result.dtype)
    generator = torch.Generator().manual_seed(seed)
    at = tuple(int(torch.randint(0, size, (), generator=generator)) for size in result.shape)
    low, high = 1.0, 10000.0
    while high / low > 1.05:
        middle, changed = math.sqrt(low * high), result.clone()
        changed[at] += middle * form.unit_roundoff * scale
        parts = [
            Summed(attention.heads(changed, place), each.of("output"), sum_["output"])
            for place, each, sum_ in zip(attention.groups(), sketches, sums, strict=True)
        ]
        found = residuals(parts, scale, roundoffs_allowed(result.dtype), len(parts))
        low, high = (middle, high) if all(each.share <= 1 for each in found.values()) else (low, middle)
    return high


def cost(options: argparse.Namespace) -> None:
    """Print the CPU seconds of both checks, by turns, apart from drawing the inputs and from the target's runs."""
    torch.set_num_threads(1)
    shape = (1, options.heads, options.length, options.width)
    for dtype in options.dtypes:
        given = [
            tensor(*shape, dtype=dtype, low=-options.high, high=options.high, requires_grad=True) for _ in range(3)
        ]
        records = {
            f"{ATTENTION}.0.forward": forward(*given, output=given[:1], is_causal=value(True)),
            f"{ATTENTION}.0.backward": {"input": [tensor(*shape, dtype=dtype)], "output": given},
        }
        with TemporaryDirectory() as folder:
            (call,) = read(Path(folder), records)
            seconds: dict[str, list[list[float]]] = {"exact": [], "screened": []}
            for _ in range(options.turns):
                for way, above in (("exact", None), ("screened", 0)):
                    seconds[way].append(turn(call, above))
        medians = {
            way: [statistics.median(each) for each in zip(*turns, strict=True)] for way, turns in seconds.items()
        }
        names = ["inputs", "target", "target's gradients", "forward", "backward"]
        rows = [[name, *(f"{medians[way][i]:.2f}" for way in medians)] for i, name in enumerate(names)]
        print(table([f"CPU seconds, {dtype} {shape}", *medians], rows))
        print(f"checks alone: {sum(medians['exact'][3:]) / sum(medians['screened'][3:]):.1f} x less")


def rows(options: argparse.Namespace) -> None:
    """Print the CPU seconds of the exact check of operations by rows, forward and backward, beside those of inputs."""
    torch.set_num_threads(1)
    found = []
    for dtype in options.dtypes:

        def x(*shape: int, dtype: str = dtype) -> Json:
            return tensor(*shape, dtype=dtype, low=-options.high, high=options.high, requires_grad=True)

        labels = tensor(1024, dtype="int64", low=0, high=31999)
        operations: dict[str, tuple[list[Any], Json, tuple[int, ...]]] = {
            "softmax": ([x(1, 32, 1024, 1024)], {"dim": value(-1)}, (1, 32, 1024, 1024)),
            "layer_norm": ([x(1024, 4096), value([4096]), x(4096), x(4096)], {}, (1024, 4096)),
            "rms_norm": ([x(1024, 4096), value([4096]), x(4096)], {}, (1024, 4096)),
            "cross_entropy": ([x(1024, 32000), labels], {}, ()),
        }
        for name, (args, kwargs, shape) in operations.items():
            given = [each for each in args if isinstance(each, dict) and each.get("requires_grad")]
            records = {
                f"Functional.{name}.0.forward": forward(*args, output=[x(*shape)], **kwargs),
                f"Functional.{name}.0.backward": {"input": [x(*shape)], "output": given},
            }
            with TemporaryDirectory() as folder:
                (call,) = read(Path(folder), records)
                turns = [turn(call, None) for _ in range(options.turns)]
            found.append([name, dtype, *(f"{statistics.median(each):.2f}" for each in zip(*turns, strict=True))])
    print(table(["CPU seconds", "dtype", "inputs", "target", "target's gradients", "forward", "backward"], found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("verdicts", "healthy", "element", "cost", "rows"))
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--high", type=float, default=1.7, help="the greatest magnitude of an operand's elements")
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"], choices=DTYPES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    parts = {"verdicts": verdicts, "healthy": healthy, "element": element, "cost": cost, "rows": rows}
    parts[options.part](options)


if __name__ == "__main__":
    main()
