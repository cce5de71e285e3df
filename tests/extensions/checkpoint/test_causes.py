"""Weights that differ name their cause: an adapter that was not merged, a second rounding, a replica's step."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import write_weights
from pytest_msprobe.extensions.checkpoint.value_differences import low_rank, rounding

WIDTH, RANK = 48, 3


class AdaptedLinear(nn.Module):
    """A linear layer with a low-rank adapter, which `merge` adds to its weight (Hu et al. 2021, section 4.1)."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH, generator=generator))
        self.up, self.down = (torch.randn(shape, generator=generator) / 10 for shape in ((WIDTH, RANK), (RANK, WIDTH)))

    def merge(self) -> None:
        with torch.no_grad():
            self.weight += self.up @ self.down


class Layer(nn.Module):
    """A decoder layer's projections and norm under transformers' names."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.self_attn = nn.Module()
        for place, name in enumerate("qkvo"):
            self.self_attn.add_module(f"{name}_proj", AdaptedLinear(10 * seed + place))
        self.input_layernorm = nn.LayerNorm(WIDTH, bias=False)


class Model(nn.Module):
    """Three layers; adapters of queries and values."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(seed) for seed in range(3))

    def merge(self, targets: str = "qv") -> Model:
        for layer in self.layers:
            for name in targets:
                layer.get_submodule(f"self_attn.{name}_proj").merge()
        return self


Compare = Callable[..., tuple[dict[str, str], list[str]]]


@pytest.fixture
def compare(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Compare:
    """Return what compares two folders: the reasons of failures by parameter, and the lines of the summary."""
    monkeypatch.setenv("COLUMNS", "600")

    def compare(target: Path, golden: Path, *options: str) -> tuple[dict[str, str], list[str]]:
        result = pytester.runpytest_inprocess(
            f"--msprobe-checkpoint={target}", f"--msprobe-golden={golden}", "--tb=no", "-rf", "--color=no", *options
        )
        text = result.stdout.str()
        found = re.findall(r"^FAILED \S*::(\S+) - (.*)$", text, re.MULTILINE)
        return dict(found), text.partition("= msprobe =")[2].splitlines()

    return compare


def written(weights: nn.Module | dict[str, Tensor], folder: Path, what: str = "tensors", **options: object) -> Path:
    return write_weights(weights, folder, what, **options).parent


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_adapter_that_was_not_merged_is_named_by_the_rank_of_the_difference(
    compare: Compare, tmp_path: Path, dtype: torch.dtype
) -> None:
    engine, trainer = Model().to(dtype), Model().merge().to(dtype)
    found, summary = compare(written(engine, tmp_path / "engine"), written(trainer, tmp_path / "trainer"))
    assert found.keys() == {f"layers.{n}.self_attn.{p}_proj.weight" for n in range(3) for p in "qv"}
    words = f"the difference has rank {RANK}, as of LoRA weights that were not merged"
    assert all(f"{words}; values differ by" in reason for reason in found.values())
    assert any(line.startswith(f"6 differ alike: {words}") for line in summary)


def test_digests_hint_at_an_adapter_where_whole_projections_alone_differ(compare: Compare, tmp_path: Path) -> None:
    sides = written(Model(), tmp_path / "engine", "digest"), written(Model().merge(), tmp_path / "trainer", "digest")
    _, summary = compare(*sides)
    hint = "what differs is q_proj, v_proj, in all 3 layers, and nothing besides: LoRA that was not merged"
    assert any(line.startswith(hint) for line in summary)
    assert any('write_weights(..., what="tensors") on both sides' in line for line in summary)


@pytest.mark.parametrize("name", ["layers.1.self_attn.q_proj.weight", "layers.0.input_layernorm.weight"])
def test_digests_do_not_hint_at_an_adapter_where_one_layer_or_a_norm_differs(
    compare: Compare, tmp_path: Path, name: str
) -> None:
    trainer = Model()
    with torch.no_grad():
        trainer.get_parameter(name).mul_(2)
    _, summary = compare(written(Model(), tmp_path / "a", "digest"), written(trainer, tmp_path / "b", "digest"))
    assert not any("LoRA" in line for line in summary)


@pytest.mark.parametrize("rank", [1, 4, 11])
def test_the_rank_of_a_difference_is_that_of_its_singular_values(rank: int) -> None:
    generator = np.random.default_rng(rank)
    golden = generator.standard_normal((64, 96))
    target = golden + generator.standard_normal((64, rank)) @ generator.standard_normal((rank, 96))
    assert np.linalg.matrix_rank(target - golden, tol=1e-9) == rank
    assert low_rank(torch.from_numpy(target), torch.from_numpy(golden)) == rank


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1.0, 0.05, 0.003])
def test_a_difference_of_full_rank_has_no_low_rank(dtype: torch.dtype, size: float) -> None:
    generator = torch.Generator().manual_seed(0)
    golden, update = (torch.randn(64, 64, generator=generator) for _ in range(2))
    assert low_rank((golden + size * update).to(dtype), golden.to(dtype)) is None


def test_one_row_that_differs_is_no_adapter() -> None:
    golden = torch.randn(64, 64, generator=torch.Generator().manual_seed(0))
    target = golden.clone()
    target[3] += 1
    assert low_rank(target, golden) is None


def test_weights_that_were_rounded_twice_name_the_dtype_on_the_way(compare: Compare, tmp_path: Path) -> None:
    engine = Model().half().bfloat16()
    found, summary = compare(written(engine, tmp_path / "engine"), written(Model(), tmp_path / "trainer"))
    assert len(found) == 12
    words = "rounded twice: golden's values rounded to float16 and then to bfloat16"
    assert all(reason.startswith(f"{words}; ") for reason in found.values())
    assert any(line.startswith(f"12 differ alike: {words}") for line in summary)


def test_values_that_are_a_unit_apart_say_so(compare: Compare, tmp_path: Path) -> None:
    state = {"layers.0.mlp.up_proj.weight": torch.randn(6, 8, generator=torch.Generator().manual_seed(0))}
    moved = state["layers.0.mlp.up_proj.weight"].clone()
    moved[2, 3:5] = moved[2, 3:5].nextafter(torch.tensor(9.0))
    engine = written({"layers.0.mlp.up_proj.weight": moved}, tmp_path / "engine")
    found, _ = compare(engine, written(state, tmp_path / "trainer"))
    words = "2 of 48 values are one unit of float32 apart, as after another rounding"
    assert f"1 of 6 rows differ (2); {words}" in found["layers.0.mlp.up_proj.weight"]


def test_neighbours_across_zero_are_one_unit_apart() -> None:
    tiny = torch.tensor([5e-324, 1.0], dtype=torch.float64)
    zero = torch.tensor([-0.0, 1.0], dtype=torch.float64)
    assert rounding(tiny, zero)[0].startswith("1 of 2 value is one unit of float64 apart")
    assert rounding(tiny, -tiny) == ("", False)


def test_values_that_are_golden_s_in_bfloat16_warn_as_their_digests_do(compare: Compare, tmp_path: Path) -> None:
    found, summary = compare(
        written(Model().bfloat16(), tmp_path / "engine"),
        written(Model(), tmp_path / "trainer"),
        "--msprobe-json=out.json",
    )
    assert found == {}
    assert "15 tensors: 15 warned" in summary


def replicas(folder: Path, states: list[dict[str, Tensor]]) -> Path:
    """Write what ranks hold that should hold the same."""
    for rank, state in enumerate(states):
        layout = {"dp": (rank, len(states))}
        write_weights(state, folder, step=1, rank=rank, layout=layout)
    return folder


@pytest.mark.parametrize(
    ("stale", "words"),
    [
        (1, "rank 1 holds other values than rank 0; rank 1: not synchronised: still equal to trainer/step0"),
        (0, "ranks 1, 2 hold other values than rank 0; rank 0: not synchronised: still equal to trainer/step0"),
    ],
)
def test_a_replica_of_an_earlier_step_names_the_step(compare: Compare, tmp_path: Path, stale: int, words: str) -> None:
    before, after = {"norm.weight": torch.ones(8)}, {"norm.weight": torch.arange(8.0)}
    write_weights(before, tmp_path / "trainer", step=0)
    golden = write_weights(after, tmp_path / "trainer", step=1).parent
    states = [before if rank == stale else after for rank in range(3)]
    found, _ = compare(replicas(tmp_path / "engine", states), golden)
    assert found == {"norm.weight": words}


def test_a_cause_that_many_parameters_have_is_one_line_with_examples(compare: Compare, tmp_path: Path) -> None:
    names = [f"layers.{layer}.self_attn.o_proj.weight" for layer in range(16)]
    whole = {name: torch.full((4, 8), float(place)) for place, name in enumerate(names)}
    half = {name: weight[:, :4].contiguous() for name, weight in whole.items()}
    write_weights(half, tmp_path / "engine", step=1, rank=0, layout={"tp": (0, 2)})
    found, summary = compare(tmp_path / "engine", written(whole, tmp_path / "trainer", "digest"))
    assert len(found) == 16
    line = "16 differ alike: no rank holds share 1 of 2; write the weights of all ranks"
    assert f"{line} ({', '.join(names[:3])} and 13 more)" in summary


def test_the_json_file_has_the_kind_of_what_values_show(compare: Compare, tmp_path: Path) -> None:
    sides = written(Model(), tmp_path / "engine"), written(Model().merge("k"), tmp_path / "trainer")
    compare(*sides, f"--msprobe-json={tmp_path / 'found.json'}")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["layers.0.self_attn.k_proj.weight"]["finding"] == "low_rank"
    assert "finding" not in found["layers.0.self_attn.q_proj.weight"]
