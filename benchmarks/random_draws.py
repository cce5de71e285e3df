"""Healthy draws of several generators, judged as the results of random calls; an alarm is printed as it comes.

A draw is one result of one call: dropout, normal, uniform, exponential, Bernoulli and multinomial numbers,
permutations, each made of the uniform numbers of one generator in one of several ways. Calls that follow each other
are also judged together, as a replay does. The journal says how many rounds each pair of generator and way has had;
the same command goes on from there.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import quote, scratch, table
from torch import Tensor

from pytest_msprobe.engine.replay.ops.op_info import random_property
from pytest_msprobe.engine.replay.random_apis.attention_dropout import WeightMask
from pytest_msprobe.engine.replay.random_apis.samples import judge_draws

Uniform = Callable[[int], Tensor]  # n -> n numbers in [0, 1) or (0, 1], float32


def ways(bits: Callable[[int], Tensor]) -> dict[str, Uniform]:
    """Return uniform numbers made of 32 random ``bits`` in the ways of common kernels."""

    def strided(n: int) -> Tensor:
        """Lay out what threads of a grid draw in turn, four numbers from each counter."""
        threads = 256
        rows = -(-n // (4 * threads))
        return (bits(rows * 4 * threads) >> 8).view(rows, threads, 4).transpose(1, 2).flatten()[:n].float() * 2.0**-24

    def doubles(n: int) -> Tensor:
        high, low = bits(n) >> 5, bits(n) >> 6
        return ((high * 2.0**26 + low) * 2.0**-53).float()

    return {
        "24 bits in [0, 1)": lambda n: (bits(n) >> 8).float() * 2.0**-24,
        "32 bits in (0, 1]": lambda n: ((bits(n).double() + 1) * 2.0**-32).float(),
        "53 bits": doubles,
        "23 bits of a mantissa": lambda n: ((bits(n) >> 9).int() | 0x3F800000).view(torch.float32) - 1,
        "strided threads": strided,
    }


def generators(seed: int) -> dict[str, Callable[[int], Tensor]]:
    """Return sources of 32 bits: numpy's bit generators and torch's own."""

    def of_numpy(kind: str) -> Callable[[int], Tensor]:
        generator = np.random.Generator(getattr(np.random, kind)(seed))
        return lambda n: torch.from_numpy(generator.integers(0, 2**32, n, dtype=np.uint32).astype(np.int64))

    def of_torch(n: int) -> Tensor:
        return torch.randint(0, 2**32, (n,), generator=own)

    own = torch.Generator().manual_seed(seed)
    return {kind: of_numpy(kind) for kind in ("Philox", "MT19937", "PCG64", "SFC64")} | {"torch": of_torch}


def normal(u: Uniform, n: int) -> Tensor:
    """Return normal numbers by the transform of Box and Muller."""
    half = (n + 1) // 2
    radius, angle = (-2 * (1 - u(half)).clamp(min=2.0**-25).log()).sqrt(), 2 * math.pi * u(half)
    return torch.cat([radius * angle.cos(), radius * angle.sin()])[:n]


def calls(u: Uniform, shape: tuple[int, ...], dtype: torch.dtype) -> Iterator[tuple[str, Any, Callable[[], Any]]]:
    """Yield names, properties and draws of calls whose results have that shape and dtype."""
    n, zeros = math.prod(shape), torch.zeros(shape, dtype=dtype)

    def made(api: str, *args: Any) -> Any:
        return random_property(api, args, {})

    x = torch.full(shape, 3.0, dtype=dtype)
    for p in (0.1, 0.5):
        rounded = float(torch.tensor(p, dtype=dtype))
        yield f"dropout {p}", made("dropout", x, p, True), lambda p=rounded: x * (u(n).view(shape) >= p) / (1 - p)
    scores = torch.full(shape, 0.25, dtype=dtype)
    # Fused kernels compare a byte with the probability of keeping.
    yield (
        "attention",
        WeightMask(scores, 0.1),
        lambda: [scores * ((u(n) * 256).floor() < 230).view(shape) / (230 / 256)],
    )
    yield "normal_", made("normal_", zeros, 1.0, 0.5), lambda: (normal(u, n).view(shape) * 0.5 + 1).to(dtype)
    yield "uniform_", made("uniform_", zeros, -2.0, 3.0), lambda: (u(n).view(shape) * 5 - 2).to(dtype)
    yield "uniform_ 1", made("uniform_", zeros), lambda: u(n).view(shape).to(dtype)
    half = torch.finfo(torch.float32).eps / 8
    yield (
        "exponential_",
        made("exponential_", zeros, 2.0),
        lambda: (-(1 - u(n).double()).clamp(min=half).log() / 2).view(shape).to(dtype),
    )
    chances = torch.rand(shape, generator=torch.Generator().manual_seed(n)).to(dtype)
    yield "bernoulli", made("bernoulli", chances), lambda: (u(n).view(shape) < chances.float()).to(dtype)
    if dtype is torch.float32:
        weights = torch.rand(32, 8, generator=torch.Generator().manual_seed(n))
        sums = (weights.double().cumsum(1) / weights.double().sum(1, keepdim=True)).contiguous()
        sums[:, -1] = 1.0
        count = max(1, n // 32)
        below = 1 - 2.0**-24
        yield (
            "multinomial",
            made("multinomial", weights, count, True),
            lambda: torch.searchsorted(sums, u(32 * count).view(32, count).double().clamp(max=below), right=True),
        )
        yield "randperm", made("randperm", n), lambda: u(n).double().add(u(n).double() * 2.0**-24).argsort()
        integers = random_property("randint", (0, 100, shape), {})
        yield "randint", integers, lambda: (u(n).double().clamp(max=below) * 100).long().view(shape)


SHAPES = ((7,), (64,), (30, 50), (4, 16, 32), (40, 300), (2, 4, 64, 32), (64, 500))
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def one_round(bits: Callable[[int], Tensor], way: str, report: Callable[[str], None]) -> int:
    """Judge one draw of each call, and those that follow it; return how many were drawn."""
    u, drawn = ways(bits)[way], 0
    for shape, dtype in itertools.product(SHAPES, DTYPES):
        for name, rule, draw in calls(u, shape, dtype):
            count = itertools.count()
            verdict = judge_draws(rule, (draw() for _ in count))
            drawn += next(count)
            if verdict.outcome != "pass":
                report(f"{name} {tuple(shape)} {dtype}: {verdict.reason}")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--journal", type=Path, default=scratch() / "random_draws.json")
    parser.add_argument("--draws", type=int, default=1_000_000, help="draws of all generators to reach (default: 10^6)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="time after which to stop")
    options = parser.parse_args()

    torch.set_num_threads(1)
    journal = json.loads(options.journal.read_text()) if options.journal.exists() else {"rounds": {}, "alarms": []}
    names = [f"{generator}, {way}" for way in ways(generators(0)["torch"]) for generator in generators(0)]
    start = time.monotonic()
    for number in itertools.count():
        for name in names:
            draws, rounds = journal["rounds"].get(name, (0, 0))
            if rounds > number:
                continue
            if sum(d for d, _ in journal["rounds"].values()) >= options.draws:
                break
            if time.monotonic() - start > options.minutes * 60:
                break

            def report(alarm: str, name: str = name, number: int = number) -> None:
                journal["alarms"].append(f"{name}, round {number}: {alarm}")
                print(f"alarm: {name}, round {number}: {alarm}", flush=True)

            kind, way = name.split(", ", 1)
            draws += one_round(generators(number)[kind], way, report)
            journal["rounds"][name] = (draws, rounds + 1)
            options.journal.write_text(json.dumps(journal, indent=1))
        else:
            continue
        break
    total = sum(draws for draws, _ in journal["rounds"].values())
    print(
        table(["generator and way", "draws", "rounds"], [[name, *found] for name, found in journal["rounds"].items()])
    )
    quote(f"alarms in {total} healthy draws", len(journal["alarms"]), unit="", wanted="0")
    print(f"{total} draws, {len(journal['alarms'])} alarms")


if __name__ == "__main__":
    main()
