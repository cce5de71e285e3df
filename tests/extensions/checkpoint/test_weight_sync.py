"""Weights of a trainer and of an engine: what was not synchronised is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from msprobe_hooks import write_weights
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.items import judge_parameter
from pytest_msprobe.extensions.checkpoint.same_model import paired
from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint
from pytest_msprobe.extensions.model_names.model_names import model_names
from tests.support.compared_weights import compared
from tests.support.dumps.parallel_weights import CONFIG, EXPERTS, megatron, qwen2, qwen3_moe, vllm

State = dict[str, Tensor]
QKV = "model.layers.2.self_attn.qkv_proj.weight"
OUTPUT = "model.layers.1.self_attn.o_proj.weight"


def write_vllm(state: State, folder: Path, change: Callable[[State, int], None] = lambda state, rank: None) -> Path:
    """Write what both tensor parallel ranks of vLLM hold, after a change."""
    for rank in range(2):
        held = vllm(state, rank, 2)
        change(held, rank)
        write_weights(held.items(), folder, step=1, rank=rank, layout={"tp": (rank, 2)})
    return folder


@pytest.fixture(params=[qwen2, qwen3_moe], ids=["dense", "experts"])
def state(request: pytest.FixtureRequest) -> State:
    """Return a model's weights."""
    made: State = request.param()
    return made


def trainer(state: State, folder: Path, before: State | None = None) -> Path:
    """Write what a trainer holds, at step 0 before and at step 1 after an update, and return the later step."""
    if before is not None:
        write_weights(before, folder, step=0, config=CONFIG)
    return write_weights(state, folder, step=1, config=CONFIG).parent


def test_tensor_parallel_ranks_of_an_engine_have_the_weights_of_a_trainer(state: State, tmp_path: Path) -> None:
    assert compared(write_vllm(state, tmp_path / "engine"), trainer(state, tmp_path / "trainer")) == {}


@pytest.mark.parametrize("ranks", [2])
def test_stages_and_tensor_parallel_ranks_of_megatron_are_one_model(tmp_path: Path, ranks: int) -> None:
    state = qwen2()
    for stage in range(2):
        for rank in range(ranks):
            layout = {"tp": (rank, ranks), "pp": (stage, 2)}
            held = megatron(state, (rank, ranks), (stage, 2))
            write_weights(held, tmp_path / "megatron", step=1, rank=stage * ranks + rank, layout=layout)
    assert compared(tmp_path / "megatron", trainer(state, tmp_path / "trainer")) == {}


def test_virtual_stages_are_numbered_in_their_order(tmp_path: Path) -> None:
    state = qwen2()
    held = [megatron(state, (0, 1), (stage, 4)) for stage in range(4)]
    for rank in range(2):
        chunks = []
        for stage in (rank, rank + 2):
            chunk = torch.nn.Module()
            for name, tensor in held[stage].items():
                owner = chunk
                *parents, last = name.split(".")
                for parent in parents:
                    if not hasattr(owner, parent):
                        owner.add_module(parent, torch.nn.Module())
                    owner = getattr(owner, parent)
                owner.register_parameter(last, torch.nn.Parameter(tensor, requires_grad=False))
            chunks.append(chunk)
        write_weights(chunks, tmp_path / "megatron", step=1, rank=rank, layout={"pp": (rank, 2)}, config=CONFIG)
    assert compared(tmp_path / "megatron", trainer(state, tmp_path / "trainer")) == {}


def test_expert_parallel_ranks_number_their_experts_through(tmp_path: Path) -> None:
    state = qwen3_moe()
    for rank in range(2):
        held = vllm(state, 0, 1)
        for name in [name for name in held if "w13" in name or "w2_" in name]:
            held[name] = held[name].chunk(2)[rank]
        write_weights(held, tmp_path / "engine", step=1, rank=rank, layout={"ep": (rank, 2)})
    assert compared(tmp_path / "engine", trainer(state, tmp_path / "trainer")) == {}


def test_columns_of_one_rank_that_were_not_updated_are_named_with_the_step_that_they_are_of(
    state: State, tmp_path: Path
) -> None:
    before = {name: tensor + 1 for name, tensor in state.items()}

    def stale(held: State, rank: int) -> None:
        if rank == 1:
            held[OUTPUT] = vllm(before, 1, 2)[OUTPUT]

    found = compared(write_vllm(state, tmp_path / "engine", stale), trainer(state, tmp_path / "trainer", before))
    reason = "16 of 32 columns differ (16-31), of tensor parallel rank 1: still equal to trainer/step0"
    assert found == {"layers.1.self_attn.o_proj.weight": ("fail", reason)}


def test_a_part_of_a_fused_weight_that_was_not_updated_is_named(state: State, tmp_path: Path) -> None:
    def stale(held: State, rank: int) -> None:
        if rank == 0:
            held[QKV][16:24] += 1

    found = compared(write_vllm(state, tmp_path / "engine", stale), trainer(state, tmp_path / "trainer"))
    reason = "8 of 16 rows differ (0-7), of tensor parallel rank 0"
    assert found == {"layers.2.self_attn.k_proj.weight": ("fail", reason)}


def test_a_transposed_weight_is_named(state: State, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    held = vllm(state, 0, 1)
    held[OUTPUT] = held[OUTPUT].t().contiguous()
    write_weights(held, folder, step=1)
    found = compared(folder, trainer(state, tmp_path / "trainer"))
    assert found == {"layers.1.self_attn.o_proj.weight": ("fail", "the target is golden's transpose")}


def test_one_expert_that_was_not_updated_is_named(tmp_path: Path) -> None:
    def stale(held: State, rank: int) -> None:
        held["model.layers.3.mlp.experts.w2_weight"][EXPERTS - 1] += rank

    state = qwen3_moe()
    found = compared(write_vllm(state, tmp_path / "engine", stale), trainer(state, tmp_path / "trainer"))
    reason = "24 of 48 columns differ (24-47), of tensor parallel rank 1"
    assert found == {"layers.3.mlp.experts.3.down_proj.weight": ("fail", reason)}


def test_experts_that_are_stored_transposed_are_compared_and_warned_of(tmp_path: Path) -> None:
    state = qwen3_moe()
    held = vllm(state, 0, 1)
    for name in [name for name in held if "w13" in name or "w2_" in name]:
        held[name] = held[name].transpose(1, 2).contiguous()
    write_weights(held, tmp_path / "engine", step=1)
    found = compared(tmp_path / "engine", trainer(state, tmp_path / "trainer"))
    assert {outcome for outcome, _ in found.values()} == {"warn"}
    assert len(found) == 4 * EXPERTS * 3


def test_a_whole_model_of_the_step_before_is_named(tmp_path: Path) -> None:
    state, before = qwen2(1), qwen2()
    found = compared(write_vllm(before, tmp_path / "engine"), trainer(state, tmp_path / "trainer", before))
    assert len(found) == 51
    assert {reason for _, reason in found.values()} == {"not synchronised: still equal to trainer/step0"}


def test_a_data_parallel_replica_that_holds_other_values_is_named(tmp_path: Path) -> None:
    state = qwen2()
    for rank in range(3):
        held = vllm(state, 0, 1)
        held["model.norm.weight"][0] += rank == 2
        write_weights(held, tmp_path / "engine", step=1, rank=rank, layout={"dp": (rank, 3)})
    found = compared(tmp_path / "engine", trainer(state, tmp_path / "trainer"))
    assert found == {
        "norm.weight": ("fail", "rank 2 holds other values than rank 0; rank 2: 1 of 32 elements differ (0)")
    }


def test_weights_that_were_only_rounded_warn(tmp_path: Path) -> None:
    wide = {name: tensor.float() * 1.001 for name, tensor in qwen2().items()}
    rounded = {name: tensor.bfloat16() for name, tensor in wide.items()}
    found = compared(write_vllm(rounded, tmp_path / "engine"), trainer(wide, tmp_path / "trainer"))
    reason = "equal when rounded to bfloat16: dtype bfloat16, golden float32"
    assert set(found.values()) == {("warn", reason)}
    assert len(found) == 51


def test_rows_in_another_order_are_named(tmp_path: Path) -> None:
    state = qwen2()
    other = dict(state)
    name = "model.layers.0.self_attn.q_proj.weight"
    other[name] = state[name].reshape(2, -1, 32).transpose(0, 1).reshape(32, 32).contiguous()
    write_weights(other, tmp_path / "engine", step=1)
    found = compared(tmp_path / "engine", trainer(state, tmp_path / "trainer"))
    words = "rows are golden's in another order (30 of 32: 1-30)"
    assert found["layers.0.self_attn.q_proj.weight"][1] == words


def test_a_rank_that_was_not_written_is_named(tmp_path: Path) -> None:
    state = qwen2()
    write_weights(vllm(state, 0, 2), tmp_path / "engine", step=1, layout={"tp": (0, 2)})
    found = compared(tmp_path / "engine", trainer(state, tmp_path / "trainer"))
    reason = found["layers.0.self_attn.o_proj.weight"][1]
    assert reason.startswith("no rank holds share 1 of 2 of layers.0.self_attn.o_proj.weight")


def test_values_measure_how_far_a_part_is_off(tmp_path: Path) -> None:
    state = qwen2()
    held = vllm(state, 0, 1)
    held[QKV][0] *= 2
    write_weights(held, tmp_path / "engine", "tensors", step=1)
    torch.save(state, tmp_path / "trainer.pt")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    sides = [read_checkpoint(main_file(tmp_path / "engine")), read_checkpoint(tmp_path / "trainer.pt")]
    ours, theirs = paired(sides[0], sides[1], model_names())["layers.2.self_attn.q_proj.weight"]
    assert ours is not None
    assert theirs is not None
    verdict = judge_parameter("q", ours, theirs, 0.0).verdict
    assert verdict.outcome == "fail"
    assert verdict.metrics["relative_l2"] > 0
    assert "1 of 32 rows differ (0)" in verdict.reason


def test_sizes_that_are_needed_and_unknown_are_named(tmp_path: Path) -> None:
    state = qwen2()
    write_weights(megatron(state, (0, 1), (0, 1)), tmp_path / "megatron", step=1)
    write_weights(state, tmp_path / "trainer", step=1)
    found = compared(tmp_path / "megatron", tmp_path / "trainer")
    reason = found["layers.0.self_attn.q_proj.weight"][1]
    assert "needs num_attention_heads, num_key_value_heads and head_dim of the model" in reason


def test_a_folder_of_several_steps_is_refused_with_their_names(tmp_path: Path) -> None:
    trainer(qwen2(), tmp_path / "trainer", qwen2())
    with pytest.raises(CheckpointError, match=r"holds 2 steps; name one of step0, step1"):
        main_file(tmp_path / "trainer")


def test_a_run_writes_what_it_found_as_json(pytester: pytest.Pytester) -> None:
    def stale(held: State, rank: int) -> None:
        held[OUTPUT][3] += rank

    engine = write_vllm(qwen2(), Path("engine"), stale)
    golden = trainer(qwen2(), Path("trainer"))
    run = pytester.runpytest(
        f"--msprobe-checkpoint={engine}", f"--msprobe-golden={golden}", "--msprobe-json=found.json"
    )
    run.assert_outcomes(passed=50, failed=1)
    found = json.loads(Path("found.json").read_text())["layers.1.self_attn.o_proj.weight"]
    assert (found["finding"], found["rows"], found["l2"]) == ("partly", [[3, 4]], None)


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("weights.json", b"{", "weights.json: not an index of weights"),
        (
            "weights.json",
            b'{"format": "x", "version": 1, "what": "", "framework": "", "step": 0, "rank": 0}',
            "version 1",
        ),
        ("digests.bin", b"12345678", "digests.bin has 1 digests"),
        ("digests.bin", b"123", "digests.bin: cut off"),
    ],
)
def test_a_broken_file_of_weights_is_refused_in_one_line(
    tmp_path: Path, file: str, content: bytes, problem: str
) -> None:
    folder = write_weights({"x": torch.ones(3, 4)}, tmp_path)
    (folder / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=problem) as refused:
        read_checkpoint(folder / "weights.json")
    assert "\n" not in str(refused.value)


def test_a_file_of_values_outside_of_the_folder_is_not_read(tmp_path: Path) -> None:
    folder = write_weights({"x": torch.ones(3, 4)}, tmp_path, "tensors")
    index = folder / "weights.json"
    index.write_bytes(index.read_bytes().replace(b"tensors/0.npy", b"../../../x.npy"))
    [shared] = read_checkpoint(index).shares[0].parameters
    with pytest.raises(CheckpointError, match="leads out of the folder"):
        shared.matrices[0].load()
