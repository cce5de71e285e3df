"""From how many elements on the approximations of the corpus are told from rounding, and correct devices beside them.

Each number is the share of draws in which the policy `default` fails the result; inputs are normal.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from measure import table

from msprobe_standards import Policy, judge
from tests.corpus import correct_functions as correct
from tests.corpus import faults_of_approximation as faults
from tests.corpus.fault import Launch, Variant, exactly

POLICY = Policy.load("default")
SIZES = (64, 256, 1024, 4096, 16384, 65536)
HALF, BFLOAT16 = torch.float16, torch.bfloat16

Arguments = Callable[[torch.Tensor], Sequence[Any]]


def alone(x: torch.Tensor) -> Sequence[Any]:
    return (x,)


def positive(x: torch.Tensor) -> Sequence[Any]:
    return (x.abs() + 0.5,)


def tokens(width: int) -> Arguments:
    """Return the arguments of a layer norm over rows of this width; weight and bias vary."""
    spread = torch.randn(2, width, generator=torch.Generator().manual_seed(width)) / 5

    def arguments(x: torch.Tensor) -> Sequence[Any]:
        weight, bias = (1 + spread[0]).to(x.dtype), spread[1].to(x.dtype)
        return x.reshape(-1, width), (width,), weight, bias

    return arguments


def rows(x: torch.Tensor) -> Sequence[Any]:
    """Return the arguments of a variance of 200 elements for each element of the result."""
    generator = torch.Generator().manual_seed(x.numel())
    return torch.randn(x.numel(), 200, generator=generator).to(x.dtype), -1


@dataclass(frozen=True)
class Case:
    """A variant of a function on arguments of a dtype, at the sizes from ``least`` to ``most``."""

    variant: Variant
    function: Callable[..., Any]
    arguments: Arguments
    dtype: torch.dtype
    note: str = ""
    least: int = 0
    most: int = SIZES[-1]


FAULTS = [
    Case(faults.coarse_tanh_in_float16, torch.tanh, alone, HALF),
    Case(faults.exponential_from_parabola_in_float16, torch.exp, alone, HALF),
    Case(faults.rsqrt_by_magic_number_in_float16, torch.rsqrt, positive, HALF),
    Case(faults.sine_from_parabolas_in_float16, torch.sin, alone, HALF),
    Case(faults.power_from_coarse_logarithm_in_float16, torch.pow, lambda x: (*positive(x), 2.5), HALF),
    Case(faults.logarithm_from_cubic_in_float16, torch.log, positive, HALF),
    Case(faults.gelu_by_tanh_in_16_bits, F.gelu, alone, HALF),
    Case(faults.gelu_by_tanh_in_16_bits, F.gelu, alone, BFLOAT16),
    Case(faults.gelu_by_tanh_in_16_bits, F.gelu, lambda x: (2 * x,), BFLOAT16, ", inputs twice as wide"),
    Case(faults.biased_variance_of_16_bits, torch.var, rows, BFLOAT16, " of 200", most=4096),
    *(
        Case(faults.unbiased_variance_in_layer_norm_of_16_bits, F.layer_norm, tokens(n), BFLOAT16, f" over {n}", n)
        for n in (64, 256, 1024, 4096)
    ),
]
CORRECT = [
    Case(correct.float16_steps, torch.sigmoid, alone, HALF),
    Case(correct.float16_steps, F.gelu, alone, HALF),
    Case(correct.float16_steps, F.softplus, alone, HALF),
    Case(correct.faithful_float16, torch.exp, alone, HALF),
    Case(correct.faithful_float16, torch.sin, alone, HALF),
    Case(correct.exponential_from_table, torch.exp, alone, HALF),
    Case(correct.half_precise_tanh_in_bfloat16, torch.tanh, alone, BFLOAT16),
    Case(correct.normalized_before_the_weight, F.layer_norm, tokens(256), BFLOAT16, " over 256", 256),
    Case(correct.variance_by_updating, torch.var, rows, BFLOAT16, " of 200", most=4096),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for cases in (FAULTS, CORRECT):
        print(table(["result", *map(str, SIZES)], [row(case, options.draws) for case in cases]) + "\n", flush=True)


def row(case: Case, draws: int) -> list[object]:
    name = f"{case.variant.name}: `{case.function.__name__}`{case.note}, {str(case.dtype).removeprefix('torch.')}"
    return [name, *(share(case, size, draws) if case.least <= size <= case.most else "" for size in SIZES)]


def share(case: Case, size: int, draws: int) -> str:
    return f"{sum(fails(case, size, seed) for seed in range(draws)) / draws:.2f}"


def fails(case: Case, size: int, seed: int) -> bool:
    """Tell whether one draw of so many elements fails."""
    torch.manual_seed(seed)
    api = case.function.__name__
    launch = Launch(case.function, tuple(case.arguments(torch.randn(size).to(case.dtype))), {}, api, {})
    target = case.variant.kernel(launch)
    by = POLICY.select(api, output_dtype=case.dtype)
    return judge(target, exactly(launch), standard=by, baseline=launch.run).outcome == "fail"


if __name__ == "__main__":
    main()
