"""Ranks become one run: stages under the names of one process, modules around them, sums, micro steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe_hooks.errors import DumpError
from msprobe_hooks.extensions.merged_ranks.merged_dump import MergedDump, ParallelLayout, find_models, merge_model
from tests.support.dumps.dump_files import Json, forward, tensor_around, write_dump
from tests.support.dumps.ranks import group

_TOP = "Module.module.Wrapper"


def _layer(number: int, at: float, prefix: str = "") -> Json:
    """Return a layer's forward call in a wrapper of the whole stage, and the call of an API in it."""
    path = f"Module.{prefix}layers.{number}.Layer.forward.0"
    return {f"Torch.mul.{number}.forward": forward(tensor_around(2, at=at)), path: forward(tensor_around(2, at=at))}


def _write_rank(folder: Path, rank: int, records: Json, parents: Json | None = None, **top: Any) -> Path:
    return write_dump(folder / "step0" / f"rank{rank}", records, level="mix", parents=parents, **top)


def _merge(folder: Path, **sizes: Any) -> MergedDump:
    layout = ParallelLayout(**sizes)
    (model,) = find_models(sorted(folder.rglob("dump.json")), layout)
    return merge_model(model, layout)


def _stages(folder: Path, *stages: Json) -> None:
    for rank, records in enumerate(stages):
        modules = [name for name in records if name.startswith("Module.")]
        parents = {name: modules[-1] if name not in modules else None for name in records}
        _write_rank(folder, rank, records, parents)


def test_layers_of_later_stages_and_calls_of_apis_are_counted_through(tmp_path: Path) -> None:
    _stages(tmp_path, _layer(0, 1.0) | _layer(1, 2.0), _layer(0, 3.0) | _layer(1, 4.0))
    merged = _merge(tmp_path, pp=2)
    layers = [f"Module.layers.{i}.Layer.forward.0" for i in range(4)]
    assert [name for name in merged.records if name.startswith("Module")] == layers
    assert [merged.body(name)["output"][0]["Max"] for name in layers] == [1.0, 2.0, 3.0, 4.0]
    calls = [f"Torch.mul.{i}.forward" for i in range(4)]
    assert [merged.body(name)["output"][0]["Max"] for name in calls] == [1.0, 2.0, 3.0, 4.0]


def test_layers_that_the_training_numbered_through_keep_their_numbers(tmp_path: Path) -> None:
    _stages(tmp_path, _layer(0, 1.0), _layer(1, 2.0))
    merged = _merge(tmp_path, pp=2)
    names = [name for name in merged.records if name.startswith("Module")]
    assert names == ["Module.layers.0.Layer.forward.0", "Module.layers.1.Layer.forward.0"]


def test_chunks_of_virtual_stages_are_interleaved(tmp_path: Path) -> None:
    for rank in (0, 1):
        chunks = [
            {f"Module.{chunk}.layers.0.Layer.forward.0": forward(tensor_around(2, at=1.0 + rank + 2 * chunk))}
            for chunk in (0, 1)
        ]
        _write_rank(tmp_path, rank, chunks[0] | chunks[1], dict.fromkeys(chunks[0] | chunks[1]))
    merged = _merge(tmp_path, pp=2, vpp=2)
    assert [*merged.records] == [f"Module.0.layers.{i}.Layer.forward.0" for i in range(4)]
    assert [merged.body(name)["output"][0]["Max"] for name in merged.records] == [1.0, 2.0, 3.0, 4.0]


def test_a_module_around_all_stages_is_given_the_first_input_and_returns_the_last_output(tmp_path: Path) -> None:
    for rank in (0, 1):
        inner, outer = "Module.module.layers.0.Layer", _TOP
        given, gave = tensor_around(2, at=1.0 + rank), tensor_around(2, at=2.0 + rank)
        records = {
            f"{inner}.forward.0": forward(given, output=[gave]),
            f"{outer}.forward.0": forward(given, output=[gave]),
            f"{outer}.backward.0": {"input": [gave], "output": [given]},
            f"{inner}.backward.0": {"input": [gave], "output": [given]},
        }
        parents = {f"{inner}.{way}.0": f"{outer}.{way}.0" for way in ("forward", "backward")}
        _write_rank(tmp_path, rank, records, parents | {f"{outer}.forward.0": None, f"{outer}.backward.0": None})
    merged = _merge(tmp_path, pp=2)
    body, back = merged.body(f"{_TOP}.forward.0"), merged.body(f"{_TOP}.backward.0")
    assert (body["input_args"][0]["Max"], body["output"][0]["Max"]) == (1.0, 3.0)
    assert (back["input"][0]["Max"], back["output"][0]["Max"]) == (3.0, 1.0)
    assert merged.surroundings.parents.entries["Module.module.layers.1.Layer.forward.0"] == f"{_TOP}.forward.0"
    assert [name for name in merged.records if "backward" in name and "layers" in name] == [
        "Module.module.layers.1.Layer.backward.0",
        "Module.module.layers.0.Layer.backward.0",
    ]


def test_micro_steps_follow_each_other_whatever_the_schedule_was(tmp_path: Path) -> None:
    for rank in (0, 1):
        names = [f"Module.layers.0.Layer.{way}.{micro}" for way in ("forward", "backward") for micro in (0, 1)]
        records = {name: forward(tensor_around(2)) for name in names}
        _write_rank(tmp_path, rank, records, dict.fromkeys(names))
    merged = _merge(tmp_path, pp=2)
    words = [f"{layer}{way}{micro}" for micro in (0, 1) for way, order in (("f", "01"), ("b", "10")) for layer in order]
    assert [f"{name.split('.')[2]}{name.split('.')[4][0]}{name[-1]}" for name in merged.records] == words


def _reduced(of: float, world: Any, **kwargs: Any) -> Json:
    part, whole = tensor_around(2, at=of), tensor_around(2, at=9.0)
    return {
        "Functional.linear.0.forward": forward(tensor_around(2, at=of), output=[part]),
        "Distributed.all_reduce.0.forward": forward(part, output=[whole, world], group=world, **kwargs),
    }


def test_what_a_reduction_gave_stands_for_the_parts_of_the_sum(tmp_path: Path) -> None:
    for rank in (0, 1):
        _write_rank(tmp_path, rank, _reduced(1.0 + rank, group(0, 1)), {})
    merged = _merge(tmp_path, tp=2)
    assert [*merged.records] == ["Functional.linear.0.forward"]
    assert merged.body("Functional.linear.0.forward")["output"] == [tensor_around(2, at=9.0)]


def test_a_reduction_over_other_ranks_makes_no_sum_of_the_parts(tmp_path: Path) -> None:
    for rank in (0, 1):
        _write_rank(tmp_path, rank, _reduced(1.0 + rank, group(rank, 2 + rank)), {})
    assert "shards" in _merge(tmp_path, tp=2).body("Functional.linear.0.forward")["output"][0]


def test_a_maximum_makes_no_sum_of_the_parts(tmp_path: Path) -> None:
    maximum = {"type": "torch.distributed.ReduceOp", "value": "RedOpType.MAX"}
    for rank in (0, 1):
        _write_rank(tmp_path, rank, _reduced(1.0 + rank, group(0, 1), op=maximum), {})
    assert "shards" in _merge(tmp_path, tp=2).body("Functional.linear.0.forward")["output"][0]


@pytest.mark.parametrize(("ranks", "sizes", "is_sum"), [(2, {"tp": 2}, True), (4, {"tp": 2, "pp": 2}, False)])
def test_a_reduction_in_no_named_group_is_one_of_all_ranks(
    tmp_path: Path, ranks: int, sizes: dict[str, int], is_sum: bool
) -> None:
    for rank in range(ranks):
        records = _reduced(1.0 + rank, None)
        _write_rank(tmp_path, rank, records, dict.fromkeys(records))
    output = _merge(tmp_path, **sizes).body("Functional.linear.0.forward")["output"]
    assert (output == [tensor_around(2, at=9.0)]) is is_sum


def test_data_parallel_ranks_are_runs_of_their_own(tmp_path: Path) -> None:
    for rank in range(4):
        _write_rank(tmp_path, rank, {"Torch.mul.0.forward": forward(tensor_around(2, at=1.0 + rank // 2))})
    layout = ParallelLayout(tp=2)
    models = find_models(sorted(tmp_path.rglob("dump.json")), layout)
    found = [merge_model(model, layout).body("Torch.mul.0.forward")["output"][0]["Max"] for model in models]
    assert (found, [model.place for model in models]) == ([1.0, 2.0], [(0, 0), (0, 1)])


@pytest.mark.parametrize(
    ("second", "top", "sizes", "problem"),
    [
        ({"Torch.mul.0.forward": forward(tensor_around(2, md5="0a0b0c0d"))}, {}, {"tp": 2}, "recorded with checksums"),
        ({}, {"task": "tensor"}, {"tp": 2}, "task tensor and level mix, but"),
        (
            {f"Torch.mul.{i}.{way}": forward(tensor_around(2)) for i in (0, 1) for way in ("forward", "backward")},
            {},
            {"pp": 2},
            "calls cannot be assigned to its several micro steps; record the stages at level L0 or mix",
        ),
    ],
)
def test_ranks_that_cannot_be_merged_say_why(
    tmp_path: Path, second: Json, top: Json, sizes: Json, problem: str
) -> None:
    _write_rank(tmp_path, 0, {"Torch.mul.0.forward": forward(tensor_around(2))})
    path = _write_rank(tmp_path, 1, second, **top)
    with pytest.raises(DumpError) as raised:
        _merge(tmp_path, **sizes)
    assert str(raised.value).startswith(f"{path}: {problem}")


def test_a_chunk_that_the_layout_does_not_have_is_reported(tmp_path: Path) -> None:
    name = "Module.2.layers.0.Layer.forward.0"
    for rank in (0, 1):
        _write_rank(tmp_path, rank, {name: forward(tensor_around(2))}, {name: None})
    with pytest.raises(DumpError, match=r"is in chunk 2, but vpp=2 has chunks 0 to 1"):
        _merge(tmp_path, pp=2, vpp=2)


def _expert_rank(folder: Path, rank: int, *calls: tuple[int, float]) -> None:
    """Write a rank whose tokens go to some of its two experts, and then through one more layer."""
    records, parents = {}, {}
    top = "Module.Model.forward.0"
    for number, (expert, at) in enumerate(calls):
        module = f"Module.mlp.experts.{expert}.Expert.forward.0"
        records |= {
            f"Functional.gelu.{number}.forward": forward(tensor_around(2, at=at)),
            module: forward(tensor_around(2)),
        }
        parents |= {f"Functional.gelu.{number}.forward": module, module: "Module.mlp.Moe.forward.0"}
    after = f"Functional.gelu.{len(calls)}.forward"
    records |= {
        "Torch.cat.0.forward": forward(tensor_around(2)),
        "Module.mlp.Moe.forward.0": forward(tensor_around(2)),
        after: forward(tensor_around(2, at=9.0 + rank)),
    }
    parents |= {"Torch.cat.0.forward": "Module.mlp.Moe.forward.0", "Module.mlp.Moe.forward.0": top, after: top}
    _write_rank(folder, rank, records, parents)


def test_experts_of_ranks_are_numbered_through_and_calls_after_them_are_one(tmp_path: Path) -> None:
    _expert_rank(tmp_path, 0, (0, 1.0), (1, 2.0))
    _expert_rank(tmp_path, 1, (1, 4.0))
    merged = _merge(tmp_path, ep=2)
    parents = merged.surroundings.parents.entries
    inside = {name: parents[name] for name in merged.records if "gelu" in name}
    by_module = {parent: merged.body(name)["input_args"][0]["Max"] for name, parent in inside.items()}
    assert by_module == {
        "Module.mlp.experts.0.Expert.forward.0": 1.0,
        "Module.mlp.experts.1.Expert.forward.0": 2.0,
        "Module.mlp.experts.3.Expert.forward.0": 4.0,
        "Module.Model.forward.0": 9.0,
    }
    names = [name for name in merged.records if name.startswith("Module")]
    assert names == [f"Module.mlp.experts.{i}.Expert.forward.0" for i in (0, 1, 3)] + ["Module.mlp.Moe.forward.0"]
    after = next(name for name, parent in inside.items() if parent == "Module.Model.forward.0")
    assert [shard["Max"] for shard in merged.body(after)["input_args"][0]["shards"]] == [9.0, 10.0]


def test_calls_that_send_tokens_to_experts_are_left_out(tmp_path: Path) -> None:
    _expert_rank(tmp_path, 0, (0, 1.0), (1, 2.0))
    _expert_rank(tmp_path, 1, (0, 3.0), (1, 4.0))
    merged = _merge(tmp_path, ep=2)
    assert "Torch.cat.0.forward" not in {**merged.records, **merged.surroundings.parents.entries}


def test_experts_that_the_training_numbered_through_keep_their_numbers(tmp_path: Path) -> None:
    _expert_rank(tmp_path, 0, (0, 1.0), (1, 2.0))
    _expert_rank(tmp_path, 1, (2, 3.0), (3, 4.0))
    names = [name for name in _merge(tmp_path, ep=2).records if "experts" in name]
    assert names == [f"Module.mlp.experts.{i}.Expert.forward.0" for i in range(4)]
