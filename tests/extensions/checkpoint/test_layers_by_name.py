"""Multi-token prediction, latent attention and grouped experts: each framework's names, whole and with a fault."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import write_weights
from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint, Parameter, Share, SharedParameter
from pytest_msprobe.extensions.checkpoint.checkpoint_files import parameter as in_memory
from pytest_msprobe.extensions.checkpoint.items import judge_parameter
from pytest_msprobe.extensions.checkpoint.same_model import paired
from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint
from pytest_msprobe.extensions.model_names.model_names import model_names
from tests.support.compared_weights import compared

HIDDEN, INNER, LATENT, VOCABULARY, EXPERTS = 16, 24, 8, 20, 4
CONFIG = {
    "num_attention_heads": 2,
    "hidden_size": HIDDEN,
    "q_lora_rank": 12,
    "kv_lora_rank": LATENT,
    "qk_rope_head_dim": 4,
}
State = dict[str, Tensor]


def deepseek(layers: int = 2) -> State:
    """Return a model whose last layer predicts a second token, under the names of DeepSeek-V3's checkpoint."""
    generator = torch.Generator().manual_seed(0)
    random = partial(torch.randn, generator=generator)
    state = {"model.embed_tokens.weight": random(VOCABULARY, HIDDEN)}
    for layer in range(layers + 1):
        prefix = f"model.layers.{layer}."
        state |= {
            f"{prefix}input_layernorm.weight": random(HIDDEN),
            f"{prefix}self_attn.q_a_proj.weight": random(12, HIDDEN),
            f"{prefix}self_attn.q_a_layernorm.weight": random(12),
            f"{prefix}self_attn.q_b_proj.weight": random(32, 12),
            f"{prefix}self_attn.kv_a_proj_with_mqa.weight": random(LATENT + 4, HIDDEN),
            f"{prefix}self_attn.kv_a_layernorm.weight": random(LATENT),
            f"{prefix}self_attn.kv_b_proj.weight": random(32, LATENT),
            f"{prefix}self_attn.o_proj.weight": random(HIDDEN, 16),
            f"{prefix}post_attention_layernorm.weight": random(HIDDEN),
            f"{prefix}mlp.gate_proj.weight": random(INNER, HIDDEN),
            f"{prefix}mlp.up_proj.weight": random(INNER, HIDDEN),
            f"{prefix}mlp.down_proj.weight": random(HIDDEN, INNER),
        }
    state |= {"model.norm.weight": random(HIDDEN), "lm_head.weight": random(VOCABULARY, HIDDEN)}
    prefix = f"model.layers.{layers}."
    return state | {
        f"{prefix}enorm.weight": random(HIDDEN),
        f"{prefix}hnorm.weight": random(HIDDEN),
        f"{prefix}eh_proj.weight": random(HIDDEN, 2 * HIDDEN),
        f"{prefix}shared_head.norm.weight": random(HIDDEN),
        f"{prefix}embed_tokens.weight": state["model.embed_tokens.weight"],
        f"{prefix}shared_head.head.weight": state["lm_head.weight"],
    }


_MEGATRON = {
    "input_layernorm": "input_layernorm",
    "self_attn.q_a_layernorm": "self_attention.q_layernorm",
    "self_attn.q_b_proj": "self_attention.linear_q_up_proj",
    "self_attn.kv_a_layernorm": "self_attention.kv_layernorm",
    "self_attn.kv_b_proj": "self_attention.linear_kv_up_proj",
    "self_attn.o_proj": "self_attention.linear_proj",
    "post_attention_layernorm": "pre_mlp_layernorm",
    "mlp.down_proj": "mlp.linear_fc2",
}
_PREDICTION = {"enorm": "enorm", "hnorm": "hnorm", "eh_proj": "eh_proj", "shared_head.norm": "final_layernorm"}


def megatron(state: State, inner: str = "transformer_layer", *, stage: int | None = None) -> State:
    """Return a whole model, or what one of two pipeline stages holds, as Megatron Core names it."""
    held = {"embedding.word_embeddings.weight": state["model.embed_tokens.weight"]}
    if stage != 0:
        held["decoder.final_layernorm.weight"] = state["model.norm.weight"]
        held["output_layer.weight"] = state["lm_head.weight"]
    layers = {None: (0, 1, 2), 0: (0,), 1: (1, 2)}[stage]
    for place, layer in enumerate(layers):
        theirs = f"model.layers.{layer}."
        ours = f"decoder.layers.{place}." if layer < 2 else f"mtp.layers.0.{inner}."
        for name, own in _MEGATRON.items():
            held[f"{ours}{own}.weight"] = state[f"{theirs}{name}.weight"]
        down = [state[f"{theirs}self_attn.{name}.weight"] for name in ("q_a_proj", "kv_a_proj_with_mqa")]
        held[f"{ours}self_attention.linear_qkv_down_proj.weight"] = torch.cat(down)
        gate_up = [state[f"{theirs}mlp.{name}_proj.weight"] for name in ("gate", "up")]
        held[f"{ours}mlp.linear_fc1.weight"] = torch.cat(gate_up)
    if stage != 0:
        held |= {
            f"mtp.layers.0.{own}.weight": state[f"model.layers.2.{name}.weight"] for name, own in _PREDICTION.items()
        }
    return held


def vllm(state: State) -> State:
    """Return what vLLM holds: latent projections fused, and the layer of prediction in a block of its own."""
    held = {}
    for name, weight in state.items():
        is_shared = any(part in name for part in ("enorm", "hnorm", "eh_proj", "shared_head", "embed_tokens"))
        own = name if is_shared else name.replace("layers.2.", "layers.2.mtp_block.")
        if ".q_a_proj." in name:
            other = state[name.replace("q_a_proj", "kv_a_proj_with_mqa")]
            held[own.replace("q_a_proj", "fused_qkv_a_proj")] = torch.cat([weight, other])
        elif ".kv_a_proj_with_mqa." not in name:
            held[own] = weight
    return held


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return write_weights(deepseek(), tmp_path / "trainer", config=CONFIG).parent


@pytest.mark.parametrize("inner", ["transformer_layer", "mtp_model_layer"])
def test_megatron_s_layer_of_prediction_comes_after_the_others(tmp_path: Path, golden: Path, inner: str) -> None:
    write_weights(megatron(deepseek(), inner), tmp_path / "megatron", config=CONFIG)
    found = compared(tmp_path / "megatron", golden)
    shared = {
        "layers.2.embed_tokens.weight": "it has no layers.2.embed_tokens.weight: embed_tokens.weight is compared",
        "layers.2.shared_head.head.weight": "it has no layers.2.shared_head.head.weight: lm_head.weight is compared",
    }
    assert found == {name: ("warn", f"equal digests; {words}") for name, words in shared.items()}


def test_the_layer_of_prediction_of_the_last_stage_comes_after_its_others(tmp_path: Path, golden: Path) -> None:
    for stage in range(2):
        layout = {"pp": (stage, 2)}
        write_weights(
            megatron(deepseek(), stage=stage), tmp_path / "megatron", rank=stage, layout=layout, config=CONFIG
        )
    assert {outcome for outcome, _ in compared(tmp_path / "megatron", golden).values()} == {"warn"}


def test_vllm_s_block_of_prediction_and_fused_latents_are_golden_s(tmp_path: Path, golden: Path) -> None:
    write_weights(vllm(deepseek()), tmp_path / "engine")
    assert compared(tmp_path / "engine", golden) == {}


def test_a_stale_part_of_fused_latents_is_named(tmp_path: Path, golden: Path) -> None:
    held = vllm(deepseek())
    held["model.layers.1.self_attn.fused_qkv_a_proj.weight"][12:] += 1
    write_weights(held, tmp_path / "engine")
    words = ("fail", "all 12 rows differ")
    assert compared(tmp_path / "engine", golden) == {"layers.1.self_attn.kv_a_proj_with_mqa.weight": words}


def test_a_stale_norm_of_the_layer_of_prediction_is_named(tmp_path: Path, golden: Path) -> None:
    held = megatron(deepseek())
    held["mtp.layers.0.final_layernorm.weight"] = held["mtp.layers.0.final_layernorm.weight"] + 1
    write_weights(held, tmp_path / "megatron", config=CONFIG)
    assert compared(tmp_path / "megatron", golden)["layers.2.shared_head.norm.weight"][0] == "fail"


def test_an_engine_without_prediction_lacks_its_weights_and_no_other(tmp_path: Path, golden: Path) -> None:
    held = {name: weight for name, weight in vllm(deepseek()).items() if "layers.2." not in name}
    write_weights(held, tmp_path / "engine")
    found = compared(tmp_path / "engine", golden)
    assert set(found.values()) == {("lacks", "a weight of multi-token prediction")}
    assert {name.split(".")[1] for name in found} == {"2"}
    assert len(found) == 18


class GroupedMLP(nn.Module):
    """Experts in two matrices as Megatron's GroupedMLP holds them: [in, experts x out] and [experts x in, out]."""

    def __init__(self, gate_up: Tensor, down: Tensor) -> None:
        super().__init__()
        self.num_local_experts = len(gate_up)
        # GroupedMLP.forward views them as [experts, in, out].
        self.weight1 = nn.Parameter(gate_up.transpose(1, 2).reshape(HIDDEN, -1))
        self.weight2 = nn.Parameter(down.transpose(1, 2).reshape(-1, HIDDEN))


def nested(name: str, module: nn.Module) -> nn.Module:
    for part in reversed(name.split(".")):
        parent = nn.Module()
        parent.add_module(part, module)
        module = parent
    return module


def experts() -> tuple[State, Tensor, Tensor]:
    """Return experts under the names of transformers, and their stacks [experts, out, in]."""
    generator = torch.Generator().manual_seed(0)
    gate, up = (torch.randn(EXPERTS, INNER, HIDDEN, generator=generator) for _ in range(2))
    down = torch.randn(EXPERTS, HIDDEN, INNER, generator=generator)
    state = {
        f"model.layers.0.mlp.experts.{expert}.{name}_proj.weight": stack[expert]
        for name, stack in (("gate", gate), ("up", up), ("down", down))
        for expert in range(EXPERTS)
    }
    return state, torch.cat([gate, up], 1), down


def test_megatron_s_grouped_matrices_are_the_experts_of_transformers(tmp_path: Path) -> None:
    state, gate_up, down = experts()
    golden = write_weights(state, tmp_path / "trainer").parent
    module = nested("decoder.layers.0.mlp.experts", GroupedMLP(gate_up, down))
    write_weights(module, tmp_path / "megatron", "tensors")
    assert compared(tmp_path / "megatron", golden) == {}
    gate_up[2, 5] += 1
    write_weights(nested("decoder.layers.0.mlp.experts", GroupedMLP(gate_up, down)), tmp_path / "wrong")
    found = compared(tmp_path / "wrong", golden)
    assert found == {"layers.0.mlp.experts.2.gate_proj.weight": ("fail", f"1 of {INNER} rows differ (5)")}


def test_a_state_dict_of_grouped_matrices_asks_for_the_module(tmp_path: Path) -> None:
    state, gate_up, down = experts()
    module = nested("decoder.layers.0.mlp.experts", GroupedMLP(gate_up, down))
    write_weights(module.state_dict(), tmp_path / "megatron")
    sides = [
        read_checkpoint(main_file(tmp_path / "megatron")),
        Checkpoint("", {key: in_memory(state[key]) for key in state}),
    ]
    faults = {ours.fault for ours, _ in paired(sides[0], sides[1], model_names()).values() if ours is not None}
    words = "holds all experts in one matrix; pass write_weights the module, which knows how many"
    assert faults == {f"decoder.layers.0.mlp.experts.weight{number} {words}" for number in (1, 2)}


def test_stacks_of_each_projection_are_the_experts_of_transformers(tmp_path: Path) -> None:
    state, gate_up, down = experts()
    gate, up = gate_up.chunk(2, 1)
    titan = {f"layers.0.moe.experts.{name}": stack for name, stack in (("w1", gate), ("w2", down), ("w3", up))}
    write_weights(titan, tmp_path / "titan")
    assert compared(tmp_path / "titan", write_weights(state, tmp_path / "trainer").parent) == {}


def shards_of_stack(stacks: list[Tensor], starts: list[int], count: int) -> Checkpoint:
    """Return what ranks hold of a stack of experts, each a run that begins at a number."""
    shares = []
    for rank, (stack, start) in enumerate(zip(stacks, starts, strict=True)):
        matrices = tuple(map(in_memory, stack))
        whole = (count, *stack.shape[1:])
        name = "layers.0.moe.experts.w2"
        shares.append(Share(rank, {}, (SharedParameter(name, matrices, tuple(stack.shape), whole, (start, 0, 0)),)))
    return Checkpoint("", shares=tuple(shares))


def judged(target: Checkpoint, state: State) -> dict[str, str]:
    golden = Checkpoint("", {name: in_memory(tensor) for name, tensor in state.items() if "down" in name})
    pairs: dict[str, tuple[Parameter | None, Parameter | None]] = paired(target, golden, model_names())
    reasons = {}
    for name, (ours, theirs) in pairs.items():
        assert ours is not None
        assert theirs is not None
        verdict = judge_parameter(name, ours, theirs, 0.0).verdict
        reasons |= {} if verdict.outcome == "pass" else {name: verdict.reason}
    return reasons


def test_experts_that_ranks_share_are_one_stack_and_their_replicas_are_compared() -> None:
    state, _, down = experts()
    assert judged(shards_of_stack([down[:3], down[3:]], [0, 3], EXPERTS), state) == {}
    other = down.clone()
    other[1] += 1
    found = judged(shards_of_stack([down[:3], down[3:], other[:3]], [0, 3, 0], EXPERTS), state)
    assert [*found] == ["layers.0.mlp.experts.1.down_proj.weight"]
    assert found.popitem()[1].startswith("rank 2 holds other values than rank 0; rank 2: all 16 rows differ")
    missing = judged(shards_of_stack([down[:3]], [0], EXPERTS), state)
    assert set(missing.values()) == {
        "shards of layers.0.moe.experts.w2 hold 3 of 4 matrices; write the weights of all ranks"
    }


def test_replicas_of_a_shard_that_knows_its_place_are_compared() -> None:
    whole = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))

    def shards(*parts: tuple[int, Tensor]) -> Checkpoint:
        shares = [
            Share(rank, {}, (SharedParameter("w", (in_memory(part),), tuple(part.shape), (4, 6), (start, 0)),))
            for rank, (start, part) in enumerate(parts)
        ]
        return Checkpoint("", shares=tuple(shares))

    halves = (0, whole[:2]), (2, whole[2:])
    golden = Checkpoint("", {"w": in_memory(whole)})
    ours, theirs = paired(shards(*halves, (0, whole[:2]), (2, whole[2:] + 1)), golden, model_names())["w"]
    assert ours is not None
    assert theirs is not None
    reason = judge_parameter("w", ours, theirs, 0.0).verdict.reason
    assert reason == "rank 3 holds other values than rank 1; rank 3: 2 of 4 rows differ (2-3), of rank 1"
