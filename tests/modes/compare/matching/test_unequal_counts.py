"""Modules that make another number of calls of an API: fused on one side, in several steps on the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks import record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.matching import match_records
from pytest_msprobe.modes.compare.matching.matches import MatchingRules
from tests.support.dumps.compared import Runs
from tests.support.dumps.dump_files import Json, forward, tensor_around

Compare = Callable[..., pytest.RunResult]
SIZE = 16


class Attention(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.qkv, self.out = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(4), -1) @ v
        return self.out(y.transpose(1, 2).flatten(-2))


class Block(nn.Module):
    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(SIZE), Attention(fused)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(self.norm(x))


def recorded(folder: Path, fused: bool, change: Callable[[nn.Sequential], None] | None, level: str = "mix") -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(Block(fused), Block(fused))
    if change is not None:
        change(model)
    x = torch.randn(2, 4, SIZE, generator=torch.Generator().manual_seed(1))
    with record(folder, level=level, **({"model": model} if level == "mix" else {})):
        model(x).square().mean().backward()
    return next(folder.rglob("dump.json"))


def one_weight(model: nn.Sequential) -> None:
    with torch.no_grad():
        model[1].attention.qkv.weight[3, 4] += 0.5


def epsilon(model: nn.Sequential) -> None:
    model[1].norm.eps = 0.01


@pytest.mark.parametrize("is_target_fused", [True, False])
@pytest.mark.parametrize("options", [[], ["-omsprobe_fuzzy=true"]], ids=["plain", "fuzzy"])
def test_fused_and_unfused_attention_agree(
    compare: Compare, tmp_path: Path, is_target_fused: bool, options: list[str]
) -> None:
    sides = (recorded(tmp_path / name, name == "fused", None) for name in ("fused", "plain"))
    target, golden = sides if is_target_fused else reversed([*sides])
    result = compare(target, golden, *options)
    result.stdout.fnmatch_lines(["no compared call differs*"])


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        (one_weight, "weight 1.attention.qkv.weight differs (*); first read by Functional.linear.2.forward"),
        (epsilon, "Functional.layer_norm.1.forward *"),
    ],
)
def test_a_fault_is_named_first_where_one_run_is_fused(
    compare: Compare, tmp_path: Path, change: Callable[[nn.Sequential], None], culprit: str
) -> None:
    result = compare(recorded(tmp_path / "fused", True, change), recorded(tmp_path / "plain", False, None))
    result.stdout.fnmatch_lines([f"first forward culprit: {culprit}"])


def test_without_modules_the_summary_names_the_option_that_pairs_them(compare: Compare, tmp_path: Path) -> None:
    sides = [recorded(tmp_path / name, name == "fused", None, "L1") for name in ("fused", "plain")]
    compare(*sides).stdout.fnmatch_lines(["calls were paired by their numbers, *-o msprobe_fuzzy=true"])
    compare(*sides, "-omsprobe_fuzzy=true").stdout.fnmatch_lines(["no compared call differs*"])


def in_module(runs: Runs, side: str, highs: list[float], *shape: int) -> None:
    records: Json = {}
    for i, high in enumerate(highs):
        value = tensor_around(*(shape or (2,)), Max=high)
        records[f"Torch.tanh.{i}.forward"] = forward(value, output=[value])
    runs.write(side, records)
    runs.construct(side, dict.fromkeys(records, "Module.a.M.forward.0"))


def numbers(runs: Runs, *, fuzzy: bool = False) -> list[str | None]:
    dumps = (read_dump(runs.folder / side / "dump.json") for side in ("target", "golden"))
    matches = match_records(*dumps, MatchingRules(fuzzy=fuzzy)).matches
    return [match.golden and match.golden.split(".")[2] for match in matches if match.target]


def test_calls_of_one_shape_are_paired_by_their_numbers(runs: Runs) -> None:
    in_module(runs, "target", [3.0001, 5.0])
    in_module(runs, "golden", [7.0, 3.0, 9.0, 5.0])
    assert numbers(runs) == ["1", "3"]


def test_a_call_that_differs_keeps_its_place_between_those_that_do_not(runs: Runs) -> None:
    in_module(runs, "target", [3.0, 5.5, 9.0])
    in_module(runs, "golden", [1.0, 3.0, 5.0, 9.0])
    assert numbers(runs) == ["1", "2", "3"]


def test_after_another_batch_size_calls_keep_their_partners(runs: Runs) -> None:
    in_module(runs, "target", [3.0, 5.0], 4)
    in_module(runs, "golden", [3.0, 5.0, 9.0], 2)
    assert numbers(runs) == ["0", "1"]


def test_without_numbers_the_first_calls_are_paired(runs: Runs) -> None:
    in_module(runs, "target", [1.0, 1.0])
    in_module(runs, "golden", [1.0, 1.0, 1.0])
    assert numbers(runs) == ["0", "1"]


def test_a_call_of_one_module_takes_no_partner_of_another_structure_in_another(runs: Runs) -> None:
    modules = ["Module.a.M.forward.0", "Module.b.M.forward.0"]
    for side, module, size in (("target", modules[0], 2), ("golden", modules[1], 3)):
        given = tensor_around(size)
        records: Json = {name: forward(tensor_around(5)) for name in modules}
        records["Torch.clone.0.forward"] = forward(given, output=[given])
        runs.write(side, records)
        runs.construct(side, dict.fromkeys(modules) | {"Torch.clone.0.forward": module})
    assert numbers(runs)[-1] is None
