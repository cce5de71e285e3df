"""Rare faults: the share of runs that find a fault in one element, tile, head, expert, batch entry, or at some sizes.

A run checks each record once, with values drawn from statistics or with recorded tensors, screened or exactly, or
explores around it. The faults are planted in a simulated device that computes on the CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.nn.functional as F
from measure import quote, table

from msprobe_hooks import record
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_standards import Policy
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.call import read_call
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.strategies import StrategyRegistry
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.explore.explore import explore
from pytest_msprobe.extensions.explore.options import ExploreOptions
from pytest_msprobe.extensions.screening.screen_trial import judge_by_screening

Wrong = Callable[[torch.Tensor], torch.Tensor | None]


@dataclass(frozen=True)
class Place:
    """Place where a call goes wrong: ``part`` returns a view of its result that is wrong, None for nowhere."""

    name: str
    api: str
    program: Callable[[torch.dtype], Any]
    part: Wrong
    screened: bool = False


class PartlyWrong(SimDevice):
    """Computes on the CPU; what ``part`` returns of a result is multiplied by a factor."""

    name = "partly-wrong"

    def __init__(self, api: str, part: Wrong, factor: float) -> None:
        self._api, self._part, self._factor = api, part, factor

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        """Call ``func``, and spoil a part of what comes out."""
        result = func(*args, **kwargs)
        if f".{self._api}." in record and record.endswith(".forward"):
            part = self._part(result.detach())
            if part is not None:
                part.mul_(self._factor)
        return result


def normal(*shape: int) -> Callable[[torch.dtype], torch.Tensor]:
    return lambda dtype: torch.randn(*shape).to(dtype)


def any_element(result: torch.Tensor) -> torch.Tensor:
    return result.view(-1).narrow(0, int(torch.randint(result.numel(), ())), 1)


def any_tile(size: int) -> Wrong:
    def part(result: torch.Tensor) -> torch.Tensor:
        row, column = (int(torch.randint(extent // size, ())) * size for extent in result.shape[-2:])
        return result[..., row : row + size, column : column + size]

    return part


def any_of_first(dim: int) -> Wrong:
    return lambda result: result.select(dim, int(torch.randint(result.shape[dim], ())))


def linear(m: int, k: int, n: int) -> Callable[[torch.dtype], Any]:
    return lambda dtype: F.linear(normal(m, k)(dtype), normal(n, k)(dtype))


def attention(dtype: torch.dtype) -> Any:
    return F.scaled_dot_product_attention(*(normal(2, 16, 256, 64)(dtype) for _ in range(3)))


def convolution(dtype: torch.dtype) -> Any:
    return F.conv2d(normal(8, 16, 14, 14)(dtype), normal(32, 16, 3, 3)(dtype))


def experts(dtype: torch.dtype) -> Any:
    return torch.bmm(normal(16, 32, 64)(dtype), normal(16, 64, 64)(dtype))


def gelu(dtype: torch.dtype) -> Any:
    return F.gelu(normal(64, 256)(dtype))


LARGE, SMALL = linear(512, 256, 512), linear(64, 256, 128)
PLACES = (
    Place("one element of a function's result", "gelu", gelu, any_element),
    Place("one element of a product", "linear", SMALL, any_element),
    Place("one element of a large product, screened", "linear", LARGE, any_element, screened=True),
    Place("one element of a large product, exactly", "linear", LARGE, any_element),
    Place("one tile of 16 by 16, screened", "linear", LARGE, any_tile(16), screened=True),
    Place("one tile of 64 by 64, screened", "linear", LARGE, any_tile(64), screened=True),
    Place("one tile of 128 by 128, screened", "linear", LARGE, any_tile(128), screened=True),
    Place("one tile of 16 by 16, exactly", "linear", LARGE, any_tile(16)),
    Place("one of 16 experts", "bmm", experts, any_of_first(0)),
    Place("one of 8 batch entries of a convolution", "conv2d", convolution, any_of_first(0)),
    Place("one of 32 heads, exactly", "scaled_dot_product_attention", attention, any_of_first(1)),
    Place("one of 32 heads, screened", "scaled_dot_product_attention", attention, any_of_first(1), screened=True),
)
_RARE = 1e-3
# What an element is multiplied by: 0 is a lost write, 2 a flipped bit of the exponent, the others are small errors.
FACTORS = (0.0, 2.0, 1.1, 1.01)


def beyond(unit: int) -> Wrong:
    """Return the elements of the last dimension beyond the last whole unit, where it has one or more."""

    def part(result: torch.Tensor) -> torch.Tensor | None:
        whole = result.shape[-1] // unit * unit
        return result[..., whole:] if 0 < whole < result.shape[-1] else None

    return part


def beyond_count(count: int) -> Wrong:
    """Return the elements beyond so many of a result."""
    return lambda result: result.view(-1)[count:] if result.numel() > count else None


SIZES = {**{f"beyond a multiple of {unit}": beyond(unit) for unit in (8, 16, 32, 64, 128)}}
SIZES["beyond 2^16 elements"] = beyond_count(2**16)
SIZED = {"gelu": F.gelu, "softmax": lambda x: torch.softmax(x, -1), "linear": lambda x: F.linear(x, x)}


@contextlib.contextmanager
def recorded(program: Callable[[], object], task: str) -> Iterator[Dump]:
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        with record(Path(folder), task=task, level="L1"):
            program()
        yield read_dump(next(Path(folder).rglob("dump.json")))


def replayed(dump: Dump, name: str, device: SimDevice, seed: int, *, screened: bool = False) -> Replay:
    strategies = StrategyRegistry()
    if screened:
        strategies.add(judge_by_screening)
    config = ReplayConfig(
        device,
        Policy.load("default"),
        TorchFramework(),
        strategies=strategies,
        seed=seed,
        screen_above=0.0 if screened else None,
    )
    return Replay(read_call(dump, name), config)


def share_found(place: Place, dtype: torch.dtype, task: str, factor: float, seeds: int) -> float:
    found = 0
    with recorded(lambda: place.program(dtype), task) as dump:
        name = next(name for name in dump.api_names if f".{place.api}." in name)
        for seed in range(seeds):
            torch.manual_seed(seed)
            device = PartlyWrong(place.api, place.part, factor)
            found += replayed(dump, name, device, seed, screened=place.screened).forward().verdict.outcome == "fail"
    return found / seeds


def share_explored(api: str, part: Wrong, examples: int, seeds: int) -> float:
    found = 0
    with recorded(lambda: SIZED[api](torch.randn(64, 512)), "statistics") as dump:
        name = next(name for name in dump.api_names if f".{api}." in name)
        body = msgspec.json.decode(dump.records[name])
        for seed in range(seeds):
            replay = replayed(dump, name, PartlyWrong(api, part, 0.0), seed)
            result = replay.forward()
            found += result.verdict.outcome == "fail" or (
                examples > 0 and explore(replay, body, result, ExploreOptions(examples, 60.0)).finding is not None
            )
    return found / seeds


def share_of_campaigns(records: int, runs: int) -> float:
    """Return the share of runs over so many records that find a kernel which loses an element in a call of 1 000."""
    found = 0
    with recorded(lambda: F.gelu(torch.randn(8, 64)), "statistics") as dump:
        name = next(name for name in dump.api_names if ".gelu." in name)
        for run in range(runs):
            torch.manual_seed(run)
            device = PartlyWrong("gelu", lambda result: any_element(result) if torch.rand(()) < _RARE else None, 2.0)
            found += any(
                replayed(dump, name, device, run * records + seed).forward().verdict.outcome == "fail"
                for seed in range(records)
            )
    return found / runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="runs of each fault")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [[count, f"{share_of_campaigns(count, options.seeds):.2f}"] for count in (100, 1000, 3000)]
    print(table(["records", "runs that find one wrong call in 1 000"], rows), flush=True)
    rows = []
    for place in PLACES:
        for dtype in options.dtypes:
            for task in ("statistics", "tensor"):
                shares = [share_found(place, getattr(torch, dtype), task, each, options.seeds) for each in FACTORS]
                rows.append([place.name, dtype, task, *(f"{share:.2f}" for share in shares)])
                print(*rows[-1], flush=True)
    print(table(["fault", "dtype", "task", "lost", "times 2", "times 1.1", "times 1.01"], rows))
    shown = []
    for name, part in SIZES.items():
        for api in SIZED:
            shares = [share_explored(api, part, examples, max(1, options.seeds // 4)) for examples in (0, 8, 20)]
            shown.append([name, api, *(f"{share:.2f}" for share in shares)])
    print(table(["wrong elements", "API", "default run", "--msprobe-explore 8", "--msprobe-explore 20"], shown))
    found = sum(float(row[-1]) for row in shown) / len(shown)
    quote("faults beyond whole units found by 20 explored inputs", 100 * found, unit="%")


if __name__ == "__main__":
    main()
