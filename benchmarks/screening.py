"""Screened checks of products beside exact ones: verdicts, what one wrong element has to be off by, and CPU time.

``verdicts`` runs the planted faults, the correct devices of the corpus and other accumulators over products of 512 and
more in each dimension and over an embedding of a large table, each record once exactly and once with everything
screened. ``healthy`` screens the correct CPU, or a device with another accumulator, under many seeds. ``element``
changes one element of a correct product. ``cost`` takes turns between both checks of an output projection, forward and
backward, beside drawing its inputs and the target's own runs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from accumulators import ACCUMULATORS
from measure import table

from msprobe_hooks.dump.reader import read_dump
from msprobe_standards import Policy
from msprobe_standards.dtypes import float_format, roundoffs_allowed
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.frameworks.torch import TorchFramework
from pytest_msprobe.engine.replay.call import Call, read_call
from pytest_msprobe.engine.replay.calls.arguments import TensorSource
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.screening.config import screening
from pytest_msprobe.engine.replay.screening.product import Product
from pytest_msprobe.engine.replay.screening.residuals import FALSE_STAND_OUT, examine
from pytest_msprobe.engine.replay.screening.tile_sums import TILE
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.results.result import DirectionResult
from pytest_msprobe.results.screened import screened_of
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import Variant, VariantDevice
from tests.corpus.faults import FAULTS
from tests.support.dumps import Json, forward, tensor, value, write_dump

POLICY = Policy.load("default")
DTYPES = ("float32", "float16", "bfloat16")
DTYPE = {name: getattr(torch, name) for name in DTYPES}


def products(m: int, k: int, n: int) -> Mapping[str, tuple[list[tuple[int, ...]], tuple[int, ...]]]:
    """Return, by API, the shapes of the arguments and of the result of products of these dimensions."""
    return {
        "Functional.linear": ([(2, m // 2, k), (n, k), (n,)], (2, m // 2, n)),
        "Torch.matmul": ([(2, m, k), (2, k, n)], (2, m, n)),
        "Tensor.__matmul__": ([(m, k), (k, n)], (m, n)),
        "Torch.mm": ([(m, k), (k, n)], (m, n)),
        "Torch.bmm": ([(2, m, k), (2, k, n)], (2, m, n)),
        "Torch.addmm": ([(n,), (m, k), (k, n)], (m, n)),
        "Torch.baddbmm": ([(2, m, n), (2, m, k), (2, k, n)], (2, m, n)),
        "Torch.einsum": ([(2, m, k), (2, k, n)], (2, m, n)),
        "Functional.embedding": ([(2**22 // n, n)], (m, n)),
    }


APIS = tuple(products(1, 1, 1))

# Their first arguments, by the number of rows of the result and of the operand.
_OTHERS: Mapping[str, Callable[[int, int], Json]] = {
    "Torch.einsum": lambda m, rows: value("bmk,bkn->bmn"),
    "Functional.embedding": lambda m, rows: tensor(m, dtype="int64", low=0, high=rows - 1),
}


def calls(
    folder: Path, m: int, k: int, n: int, apis: Sequence[str] = APIS[:-2], dtypes: Sequence[str] = DTYPES
) -> Iterator[Call]:
    """Write a dump of products with their gradients, and yield its calls."""
    records: Json = {}
    for api, (arguments, result) in products(m, k, n).items():
        for i, dtype in enumerate(DTYPES):
            if api not in apis or dtype not in dtypes:
                continue
            given = [tensor(*shape, dtype=dtype, requires_grad=True) for shape in arguments]
            output = [tensor(*result, dtype=dtype, low=-9.0, high=9.0)]
            before = [_OTHERS[api](m, arguments[0][0])] if api in _OTHERS else []
            records[f"{api}.{i}.forward"] = forward(*before, *given, output=output)
            records[f"{api}.{i}.backward"] = {"input": [tensor(*result, dtype=dtype)], "output": given}
    dump = read_dump(write_dump(folder, records))
    for name in records:
        if name.endswith("forward"):
            yield read_call(dump, name)


def both_ways(call: Call, setup: ReplayConfig) -> Iterator[DirectionResult]:
    replay = Replay(call, setup)
    yield replay.forward()
    yield replay.backward()


def verdicts(options: argparse.Namespace) -> None:
    """Print how screened verdicts agree with exact ones, by kind of variant."""
    with TemporaryDirectory() as folder:
        found = list(calls(Path(folder), *options.shape, options.apis, options.dtypes))
        variants = {"accumulators": ACCUMULATORS.values()} if options.accumulators else VARIANTS
        compared_all(found, options.seed, variants)


# What is planted in products touches those of every name.
_NAMES = {"matmul": {"einsum"}, "bmm": {"mm", "baddbmm"}}


def named_otherwise(variant: Variant) -> Variant:
    """Return a variant that runs mm, baddbmm and einsum its own way where it runs matmul and bmm so."""
    others = (names for name, names in _NAMES.items() if name in variant.apis)
    return replace(variant, apis=variant.apis.union(*others))


VARIANTS: Mapping[str, Iterable[Variant]] = {
    "faults": [*map(named_otherwise, FAULTS)],
    "correct devices": [*map(named_otherwise, CORRECT_DEVICES)],
}


def compared_all(found: Sequence[Call], seed: int, kinds: Mapping[str, Iterable[Variant]] = VARIANTS) -> None:
    """Print how screened verdicts on calls agree with exact ones, by kind of variant."""
    for kind, variants in kinds.items():
        counted = [each for variant in variants for call in found for each in compared(call, variant, seed)]
        agree = sum(exact.verdict.outcome == screened.verdict.outcome for exact, screened, _ in counted)
        cleared = sum(bool(screened_of(screened.extras)) for _, screened, _ in counted)
        failed = sum(exact.verdict.outcome == "fail" for exact, *_ in counted)
        print(f"{kind}: {len(counted)} records, {failed} fail exactly, {cleared} cleared, {agree} verdicts agree")
        for exact, screened, name in counted:
            if exact.verdict.outcome != screened.verdict.outcome:
                print(f"  {name}, {exact.record}: {exact.verdict.outcome}, {exact.verdict.reason}")


def compared(call: Call, variant: Variant, seed: int) -> Iterator[tuple[DirectionResult, DirectionResult, str]]:
    """Yield the exact and the screened result of a variant in each direction that it changes."""
    if not variant.touches(call.name.api):
        return
    ways = [
        list(
            both_ways(
                call, ReplayConfig(VariantDevice(variant), POLICY, TorchFramework(), seed=seed, screen_above=above)
            )
        )
        for above in (None, 0)
    ]
    for direction, (exact, screened) in enumerate(zip(*ways, strict=True)):
        if variant.both or variant.backward == bool(direction):
            yield exact, screened, variant.name


def normal(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(*shape, generator=generator)


def heavy_tailed(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return values of Student's t with three degrees of freedom."""
    chi = torch.stack([normal(shape, generator).square_() for _ in range(3)]).sum(0)
    return normal(shape, generator) * (3 / chi).sqrt_()


def offset(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    return normal(shape, generator) + 3


def rows_of_zeros(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return normal values, every third row of them zero."""
    values = normal(shape, generator)
    values.view(-1, shape[-1])[::3] = 0
    return values


def rows_of_all_sizes(shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return normal values, each row of a magnitude of its own between 1/8 and 8."""
    sizes = torch.exp2(6 * torch.rand((*shape[:-1], 1), generator=generator) - 3)
    return normal(shape, generator) * sizes


DISTRIBUTIONS = (normal, heavy_tailed, offset, rows_of_zeros, rows_of_all_sizes)


def drawing(drawn: Callable[..., torch.Tensor], generator: torch.Generator) -> TensorSource:
    return lambda element, _: drawn(element.shape, generator).to(DTYPE[element.dtype.removeprefix("torch.")])


def healthy(options: argparse.Namespace) -> None:
    """Print how many screened records of the correct CPU are cleared and how many fail, by distribution of the data.

    Each seed has sides of its own, from those of the shape to twice them, and a distribution.
    """
    counts: dict[str, list[int]] = {each.__name__: [0, 0, 0] for each in DISTRIBUTIONS}
    for seed in range(options.seed, options.seed + options.seeds):
        generator = torch.Generator().manual_seed(seed)
        drawn = DISTRIBUTIONS[seed % len(DISTRIBUTIONS)]
        m, k, n = (side + int(torch.randint(0, side, (), generator=generator)) for side in options.shape)
        with TemporaryDirectory() as folder:
            for call in calls(Path(folder), m // 2 * 2, k, n, options.apis, options.dtypes):
                device = VariantDevice(ACCUMULATORS[options.device]) if options.device else CpuDevice()
                setup = ReplayConfig(device, POLICY, TorchFramework(), seed=seed, screen_above=0)
                replay = Replay(call, setup, drawing(drawn, generator))
                for result in (replay.forward(), replay.backward()):
                    count = counts[drawn.__name__]
                    count[0] += 1
                    count[1] += bool(screened_of(result.extras))
                    count[2] += result.verdict.outcome == "fail"
                    if result.verdict.outcome == "fail":
                        print(f"  {drawn.__name__}, seed {seed}, {result.record}: {result.verdict.reason}", flush=True)
        if seed % 20 == 19 or seed == options.seed + options.seeds - 1:
            rows = [[name, *map(str, count)] for name, count in counts.items()]
            print(table(["values", "screened records", "cleared", "failed"], rows), flush=True)


def element(options: argparse.Namespace) -> None:
    """Print from which error on, in units of u max(|c|, mean |c|), one wrong element is seen, beside the theory."""
    rows = []
    for name in DTYPES:
        for k in (512, 2048, 8192):
            dtype, n = DTYPE[name], 1024
            generator = torch.Generator().manual_seed(options.seed)
            left, right = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((n, k), (k, n)))
            result = (left.float() @ right.float()).to(dtype)
            seen = [seen_from(left, right, result, trial) for trial in range(options.trials)]
            log = math.log(2 * (18 * n + 2 * 64 + 2) / FALSE_STAND_OUT)
            weight = float(result.float().abs().clamp(min=float(result.float().abs().mean())).square().mean().sqrt())
            theory = math.sqrt(2 * log * TILE) * roundoffs_allowed(dtype) * weight / float(result.float().abs().mean())
            rows.append(
                [
                    name,
                    str(k),
                    f"{min(seen):.0f}",
                    f"{statistics.median(seen):.0f}",
                    f"{max(seen):.0f}",
                    f"{theory:.0f}",
                ]
            )
    print(table(["dtype", "inner dimension", "least", "median", "most", "theory"], rows))


def seen_from(left: torch.Tensor, right: torch.Tensor, result: torch.Tensor, seed: int) -> float:
    """Return the least error, to a twentieth, by which one element that is not in the sample is not cleared."""
    by = POLICY.select("mm", output_dtype=result.dtype, input_dtypes={left.dtype})
    unit = float_format(result.dtype).unit_roundoff * float(result.float().abs().mean())
    generator = torch.Generator().manual_seed(seed)
    row, column = (int(torch.randint(0, size, (), generator=generator)) for size in result.shape)
    low, high = 1.0, 1000.0
    while high / low > 1.05:
        middle, changed = math.sqrt(low * high), result.clone()
        changed[row, column] += middle * unit
        is_cleared = screening(examine([Product(left, right, changed)], seed), by).is_cleared
        low, high = (middle, high) if is_cleared else (low, middle)
    return high


def cost(options: argparse.Namespace) -> None:
    """Print the CPU seconds of both checks, by turns, apart from drawing the inputs and from the target's runs."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        (call,) = [
            each
            for each in calls(Path(folder), *options.shape, apis=("Functional.linear",))
            if each.name.key.endswith("2")
        ]
        seconds: dict[str, list[list[float]]] = {"exact": [], "screened": []}
        for _ in range(options.turns):
            for way, above in (("exact", None), ("screened", 0)):
                seconds[way].append(turn(call, above))
    tell_cost(seconds)


def tell_cost(seconds: Mapping[str, list[list[float]]]) -> None:
    """Print the medians of the turns of both ways, and how many times less the screened checks take."""
    names = ["inputs", "target", "target's gradients", "forward", "backward"]
    medians = {way: [statistics.median(part) for part in zip(*turns, strict=True)] for way, turns in seconds.items()}
    rows = [[name, *(f"{medians[way][i]:.2f}" for way in medians)] for i, name in enumerate(names)]
    print(table(["CPU seconds", *medians], rows))
    print(f"checks alone: {sum(medians['exact'][3:]) / sum(medians['screened'][3:]):.1f} x less")


def turn(call: Call, above: float | None) -> list[float]:
    replay = Replay(call, ReplayConfig(CpuDevice(), POLICY, TorchFramework(), screen_above=above))
    steps = (
        lambda: replay.trial,
        lambda: replay.trial.target,
        lambda: replay.trial.target_gradients,
        replay.forward,
        replay.backward,
    )
    return [timed(step) for step in steps]


def timed(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("verdicts", "healthy", "element", "cost"))
    parser.add_argument("--shape", type=int, nargs=3, default=(512, 512, 512), help="M, K and N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--apis", nargs="+", default=list(APIS[:-2]), choices=APIS, help="of verdicts and healthy")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES), choices=DTYPES, help="of verdicts and healthy")
    parser.add_argument("--accumulators", action="store_true", help="verdicts on accumulators in place of the corpus")
    parser.add_argument("--device", choices=list(ACCUMULATORS), help="what is healthy in place of the CPU")
    options = parser.parse_args()
    if options.part == "healthy" and "Functional.embedding" in options.apis:
        parser.error("an embedding has no other accumulators and no other distributions of its indices")
    {"verdicts": verdicts, "healthy": healthy, "element": element, "cost": cost}[options.part](options)


if __name__ == "__main__":
    main()
