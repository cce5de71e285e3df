"""``--msprobe-checkpoint``: files and folders of each kind, what is reported of pairs, and what wrong input becomes."""

from __future__ import annotations

import json
import os
import pickle
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import save_file

from tests.support.browser.pages import page_data

Check = Callable[..., Any]
FLAG = "--msprobe-checkpoint"


def weights(at: float = 0.0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    made = {name: torch.randn(shape, generator=generator) for name, shape in (("a.weight", (6, 4)), ("a.bias", (6,)))}
    made["a.weight"][2, 3] += at
    return {**made, "n": torch.tensor(3)}


@pytest.fixture
def write(pytester: pytest.Pytester) -> Callable[..., None]:
    """Write tensors as a checkpoint of a kind."""

    def write(kind: str, name: str, tensors: dict[str, torch.Tensor]) -> None:
        path = pytester.path / name
        if kind == "torch":
            torch.save({"model": tensors, "step": 3}, path)
        elif kind == "safetensors":
            save_file({f"model.{key}": value for key, value in tensors.items()}, path)
        elif kind == "shards":
            path.mkdir()
            for number, (key, value) in enumerate(tensors.items()):
                save_file({f"model.{key}": value}, path / f"{number}.safetensors")
            places = {f"model.{key}": f"{number}.safetensors" for number, key in enumerate(tensors)}
            (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        else:
            dcp.save({"model": tensors}, checkpoint_id=path, no_dist=True)

    return write


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["torch", "safetensors", "shards", "dcp"])
def test_each_parameter_is_an_item_whatever_wrote_the_checkpoint(write: Check, check: Check, kind: str) -> None:
    target = "target" if kind in ("shards", "dcp") else f"target.{kind}"
    write("torch", "golden.pt", weights())
    write(kind, target, weights(at=0.5))
    checked = check(f"{FLAG}={target}", "--msprobe-golden=golden.pt")
    assert checked.outcomes == {"model.a.weight": "failed", "model.a.bias": "passed", "model.n": "passed"}
    assert "greatest error 0.5" in checked.cases["model.a.weight"].text


def test_what_is_measured_is_what_numpy_says(write: Check, check: Check, pytester: pytest.Pytester) -> None:
    write("torch", "a.pt", weights(at=0.5))
    write("torch", "b.pt", weights())
    limit = ["-omsprobe_checkpoint_limit=0.5", "--msprobe-json=out.json"]
    checked = check(f"{FLAG}=a.pt", "--msprobe-golden=b.pt", *limit)
    assert checked.exit_code == 0
    a, b = (made["a.weight"].numpy().astype(np.float64).ravel() for made in (weights(0.5), weights()))
    reported = json.loads(Path("out.json").read_text())
    assert set(reported) == {"model.a.weight", "model.a.bias", "model.n"}
    assert reported["model.a.weight"]["l2"] == pytest.approx(np.linalg.norm(a - b), rel=1e-12)
    assert reported["model.a.weight"]["cos"] == pytest.approx(a @ b / np.linalg.norm(a) / np.linalg.norm(b), rel=1e-12)
    assert reported["model.a.weight"] | {"l2": 0, "cos": 0} == {"l2": 0, "cos": 0, "numel": 24, "shape": [6, 4]}
    assert reported["model.a.bias"] == {"l2": 0.0, "cos": 1.0, "numel": 6, "shape": [6]}


def test_shape_dtype_and_what_a_side_lacks_are_reported(check: Check, pytester: pytest.Pytester) -> None:
    torch.save({"x": torch.ones(2, 3), "y": torch.ones(3), "z": torch.zeros(2), "only": torch.ones(1)}, "a.pt")
    torch.save({"x": torch.zeros(3, 2), "y": torch.ones(3).half(), "z": torch.tensor([0.0, torch.nan])}, "b.pt")
    checked = check(f"{FLAG}=a.pt", "--msprobe-golden=b.pt", "--msprobe-json=out.json")
    texts = {name: case.text.partition("\n")[0] for name, case in checked.cases.items() if case.outcome == "failed"}
    assert texts["x"] == "shape [2, 3], golden [3, 2]"
    assert texts["only"] == "missing in the golden checkpoint"
    assert "z" in texts
    assert checked.outcomes["y"] == "passed"
    reported = json.loads(Path("out.json").read_text())
    assert reported["x"] == {"l2": None, "cos": None, "numel": 6, "shape": [[2, 3], [3, 2]]}
    assert "1 warned" in checked.output


def megatron(folder: Path, tensor: int, pipeline: int, virtual: int = 1, **args: Any) -> None:
    """Write a model of four layers as the ranks of a layout hold it."""
    generator = torch.Generator().manual_seed(1)
    sizes = {"tensor_model_parallel_size": tensor, "pipeline_model_parallel_size": pipeline}
    namespace = Namespace(**sizes, expert_model_parallel_size=1, num_experts=None, **args)
    whole = {}
    for layer in range(4):
        prefix = f"decoder.layers.{layer}"
        whole[f"{prefix}.self_attention.linear_qkv.weight"] = torch.randn(12, 4, generator=generator)
        whole[f"{prefix}.mlp.linear_fc1.weight"] = torch.randn(16, 4, generator=generator)
        whole[f"{prefix}.mlp.linear_fc2.weight"] = torch.randn(4, 8, generator=generator)
        whole[f"{prefix}.mlp.linear_fc2.bias"] = torch.randn(4, generator=generator)
    per_stage = 4 // (pipeline * virtual)
    for t in range(tensor):
        for p in range(pipeline):
            stages: dict[str, dict[str, torch.Tensor]] = {}
            for v in range(virtual):
                own = stages.setdefault(f"model{v}" if virtual > 1 else "model", {})
                first = (pipeline * v + p) * per_stage
                for name, value in whole.items():
                    layer = int(name.split(".")[2])
                    if first <= layer < first + per_stage:
                        own[name.replace(f"layers.{layer}.", f"layers.{layer - first}.")] = _part(
                            name, value, t, tensor, args
                        )
            path = folder / "iter_0000007" / (f"mp_rank_{t:02d}" + (f"_{p:03d}" if pipeline > 1 else ""))
            path.mkdir(parents=True)
            torch.save({"args": namespace, **stages}, path / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("7")


def _part(name: str, value: torch.Tensor, rank: int, ranks: int, args: dict[str, Any]) -> torch.Tensor:
    if "linear_fc1" in name and args.get("swiglu"):
        return torch.cat([half.chunk(ranks)[rank] for half in value.chunk(2)]).clone()
    if name.endswith("linear_fc2.weight"):
        return value.chunk(ranks, dim=1)[rank].clone()
    return value if "bias" in name else value.chunk(ranks)[rank].clone()


def test_an_iteration_that_was_not_copied_is_named(check: Check, pytester: pytest.Pytester) -> None:
    megatron(pytester.path / "whole", 1, 1)
    megatron(pytester.path / "cut", 1, 1)
    (pytester.path / "cut" / "latest_checkpointed_iteration.txt").write_text("8")
    found = check("--msprobe-checkpoint=cut", "--msprobe-golden=whole")
    assert found.exit_code == pytest.ExitCode.USAGE_ERROR
    assert "names iteration 8, but there is no folder iter_0000008; copy the folder" in found.errors


@pytest.mark.parametrize("layout", [{"tensor": 2, "pipeline": 2}, {"tensor": 1, "pipeline": 2, "virtual": 2}], ids=str)
@pytest.mark.parametrize("args", [{}, {"swiglu": True}], ids=str)
def test_megatron_ranks_are_one_model(
    check: Check, pytester: pytest.Pytester, layout: dict[str, int], args: dict[str, Any]
) -> None:
    megatron(pytester.path / "one", 1, 1, **args)
    megatron(pytester.path / "many", **layout, **args)
    checked = check(f"{FLAG}=many", "--msprobe-golden=one")
    assert len(checked.cases) == 16
    assert set(checked.outcomes.values()) == {"passed"}
    assert "decoder.layers.3.mlp.linear_fc2.weight" in checked.outcomes


def test_a_missing_rank_and_a_missing_part_are_named(write: Check, check: Check, pytester: pytest.Pytester) -> None:
    megatron(pytester.path / "one", 1, 1)
    megatron(pytester.path / "many", 2, 2)
    Path("many/iter_0000007/mp_rank_01_001/model_optim_rng.pt").unlink()
    checked = check(f"{FLAG}=many", "--msprobe-golden=one")
    assert "mp_rank_01_001/model_optim_rng.pt: this rank of the checkpoint is missing; copy it" in checked.errors
    write("shards", "shards", weights())
    Path("shards/1.safetensors").unlink()
    assert "1.safetensors: this shard is missing; copy it" in check(f"{FLAG}=shards", "--msprobe-golden=one").errors


@dataclass
class Evil:
    """Something that is no tensor."""

    value: int = 1


@pytest.mark.filterwarnings("ignore")
def test_what_would_run_code_is_named_and_refused(write: Check, check: Check, pytester: pytest.Pytester) -> None:
    torch.save({"x": torch.ones(1)}, "b.pt")
    torch.save({"x": torch.ones(1), "args": Evil()}, "evil.pt")
    checked = check(f"{FLAG}=evil.pt", "--msprobe-golden=b.pt")
    assert checked.exit_code == 4
    assert "test_checkpoint.Evil" in checked.errors
    write("dcp", "folder", weights())
    Path("folder/.metadata").write_bytes(pickle.dumps(Fraction(1, 2)))
    checked = check(f"{FLAG}=folder", "--msprobe-golden=b.pt")
    assert "holds objects of class fractions.Fraction" in checked.errors


class Shell:
    """Something that would run a command when it is read."""

    def __reduce__(self) -> Any:
        return os.system, ("touch ran",)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_plain", [False, True], ids=["saved", "pickled"])
def test_what_torch_would_have_a_user_run_is_refused_without_its_advice(check: Check, is_plain: bool) -> None:
    torch.save({"x": torch.ones(1)}, "b.pt")
    if is_plain:
        Path("evil.pt").write_bytes(pickle.dumps(Shell()))
    else:
        torch.save({"x": torch.ones(1), "run": Shell()}, "evil.pt")
    checked = check(f"{FLAG}=evil.pt", "--msprobe-golden=b.pt")
    assert ("holds pickled objects" if is_plain else "holds objects of class posix.system") in checked.errors
    assert "set to `False`" not in checked.errors
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([f"{FLAG}=b.pt"], "--msprobe-checkpoint needs a golden checkpoint; pass --msprobe-golden PATH"),
        ([f"{FLAG}=none.pt", "--msprobe-golden=b.pt"], "none.pt: no such file"),
        ([f"{FLAG}=text.pt", "--msprobe-golden=b.pt"], "text.pt: not a readable checkpoint of torch"),
        ([f"{FLAG}=cut.safetensors", "--msprobe-golden=b.pt"], "not a readable safetensors file"),
        ([f"{FLAG}=empty", "--msprobe-golden=b.pt"], "empty: no checkpoint in this folder"),
        ([f"{FLAG}=numbers.pt", "--msprobe-golden=b.pt"], "numbers.pt: holds no tensors"),
        ([f"{FLAG}=b.pt", "--msprobe-golden=b.pt", "-omsprobe_checkpoint_limit=x"], "expected a number of at least 0"),
        (
            ["-omsprobe_checkpoint_limit=1"],
            "msprobe_checkpoint_limit has no effect without --msprobe-checkpoint; pass --msprobe-checkpoint PATH",
        ),
    ],
)
def test_wrong_input_is_one_line(check: Check, pytester: pytest.Pytester, arguments: list[str], message: str) -> None:
    torch.save({"x": torch.ones(1)}, "b.pt")
    torch.save({"x": 1}, "numbers.pt")
    Path("text.pt").write_text("hello")
    Path("cut.safetensors").write_bytes(b"\xff" * 9)
    Path("empty").mkdir()
    checked = check(*arguments)
    assert checked.exit_code == 4
    assert message in checked.errors
    assert "Traceback" not in checked.errors


def test_the_page_has_parameters_with_how_far_they_are_apart(
    write: Check, check: Check, pytester: pytest.Pytester
) -> None:
    write("torch", "golden.pt", weights())
    write("torch", "target.pt", weights(at=0.5))
    check(f"{FLAG}=target.pt", "--msprobe-golden=golden.pt", "--msprobe-html=page.html")
    data = page_data(pytester.path / "page.html")
    assert data["title"] == "1 of 3 parameters differ"
    golden = weights()["a.weight"].double()
    numbers = {row[0]: (row[1], row[2], row[6]) for row in data["rows"]}
    assert list(numbers) == ["model.a.weight", "model.a.bias", "model.n"]
    group, outcome, number = numbers["model.a.weight"]
    assert (group, outcome) == ("model", "fail")
    assert number == pytest.approx(0.5 / float(golden.norm()), rel=1e-6)


def test_the_page_of_two_checkpoints_names_the_one_of_each_parameter(
    write: Check, check: Check, pytester: pytest.Pytester
) -> None:
    for name in ("golden.pt", "one.pt", "two.pt"):
        write("torch", name, weights())
    check(f"{FLAG}=one.pt", f"{FLAG}=two.pt", "--msprobe-golden=golden.pt", "--msprobe-html=page.html")
    names = [row[0] for row in page_data(pytester.path / "page.html")["rows"]]
    assert {"one.pt: model.n", "two.pt: model.n"} <= set(names)
    assert len(names) == len(set(names)) == 6
