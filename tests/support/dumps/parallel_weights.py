"""Small models as trainers and engines hold them: each framework's names, fused parameters and ranks."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER, VOCABULARY, LAYERS, EXPERTS = 8, 4, 4, 32, 48, 40, 4, 4
CONFIG = {
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "hidden_size": HIDDEN,
}
State = dict[str, Tensor]


def qwen2(seed: int = 0) -> State:
    """Return a dense model under the names of transformers."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).bfloat16()

    state = {"model.embed_tokens.weight": random(VOCABULARY, HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            state[f"{prefix}self_attn.{name}_proj.weight"] = random(heads * HEAD_DIM, HIDDEN)
            state[f"{prefix}self_attn.{name}_proj.bias"] = random(heads * HEAD_DIM)
        state[f"{prefix}self_attn.o_proj.weight"] = random(HIDDEN, HEADS * HEAD_DIM)
        state[f"{prefix}mlp.gate_proj.weight"] = random(INNER, HIDDEN)
        state[f"{prefix}mlp.up_proj.weight"] = random(INNER, HIDDEN)
        state[f"{prefix}mlp.down_proj.weight"] = random(HIDDEN, INNER)
        state[f"{prefix}input_layernorm.weight"] = random(HIDDEN)
        state[f"{prefix}post_attention_layernorm.weight"] = random(HIDDEN)
    return state | {"model.norm.weight": random(HIDDEN), "lm_head.weight": random(VOCABULARY, HIDDEN)}


def qwen3_moe(seed: int = 0) -> State:
    """Return a mixture of experts under the names of transformers."""
    state = qwen2(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("gate", "up", "down"):
            del state[f"{prefix}mlp.{name}_proj.weight"]
        for name in "qkv":
            del state[f"{prefix}self_attn.{name}_proj.bias"]
        for name in "qk":
            state[f"{prefix}self_attn.{name}_norm.weight"] = torch.randn(HEAD_DIM, generator=generator).bfloat16()
        state[f"{prefix}mlp.gate.weight"] = torch.randn(EXPERTS, HIDDEN, generator=generator).bfloat16()
        for expert in range(EXPERTS):
            for name, shape in (("gate", (INNER, HIDDEN)), ("up", (INNER, HIDDEN)), ("down", (HIDDEN, INNER))):
                weight = torch.randn(*shape, generator=generator).bfloat16()
                state[f"{prefix}mlp.experts.{expert}.{name}_proj.weight"] = weight
    return state


def vllm(state: Mapping[str, Tensor], rank: int, ranks: int) -> State:
    """Return what a tensor parallel rank of vLLM holds: blocks of queries, keys and values; experts as one stack."""
    held: State = {}
    for name, weight in state.items():
        if any(part in name for part in (".k_proj.", ".v_proj.", ".up_proj.")) or ".experts." in name:
            continue
        if ".q_proj." in name:
            parts = [state[name.replace(".q_proj.", f".{each}_proj.")] for each in "qkv"]
            held[name.replace("q_proj", "qkv_proj")] = torch.cat([each.chunk(ranks)[rank] for each in parts])
        elif ".gate_proj." in name:
            parts = [weight, state[name.replace("gate_proj", "up_proj")]]
            held[name.replace("gate_proj", "gate_up_proj")] = torch.cat([each.chunk(ranks)[rank] for each in parts])
        elif ".o_proj." in name or ".down_proj." in name:
            held[name] = weight.chunk(ranks, 1)[rank].contiguous()
        elif name in ("model.embed_tokens.weight", "lm_head.weight"):
            held[name] = weight.chunk(ranks)[rank].contiguous()
        else:
            held[name] = weight.clone()
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}.mlp.experts."
        if f"{prefix}0.gate_proj.weight" not in state:
            continue
        gate, up, down = (
            torch.stack([state[f"{prefix}{expert}.{name}_proj.weight"] for expert in range(EXPERTS)])
            for name in ("gate", "up", "down")
        )
        held[f"{prefix}w13_weight"] = torch.cat([gate.chunk(ranks, 1)[rank], up.chunk(ranks, 1)[rank]], 1)
        held[f"{prefix}w2_weight"] = down.chunk(ranks, 2)[rank].contiguous()
    return held


def megatron(state: Mapping[str, Tensor], tensor: tuple[int, int], stage: tuple[int, int]) -> State:
    """Return what a rank of Megatron holds: groups of a key head's queries, layers from 0 in each stage."""
    rank, ranks = tensor
    held: State = {}
    per_stage = LAYERS // stage[1]
    if stage[0] == 0:
        held["embedding.word_embeddings.weight"] = state["model.embed_tokens.weight"].chunk(ranks)[rank].contiguous()
    for layer in range(per_stage):
        ours, theirs = f"decoder.layers.{layer}.", f"model.layers.{layer + stage[0] * per_stage}."
        for kind in ("weight", "bias"):
            if f"{theirs}self_attn.q_proj.{kind}" not in state:
                continue
            query, key, value = (state[f"{theirs}self_attn.{name}_proj.{kind}"] for name in "qkv")
            groups = [
                torch.cat([query.chunk(KV_HEADS)[head], key.chunk(KV_HEADS)[head], value.chunk(KV_HEADS)[head]])
                for head in range(KV_HEADS)
            ]
            held[f"{ours}self_attention.linear_qkv.{kind}"] = torch.cat(groups).chunk(ranks)[rank].contiguous()
        norms = ("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight")
        held[ours + norms[0]] = state[theirs + norms[1]].clone()
        output = state[f"{theirs}self_attn.o_proj.weight"]
        held[f"{ours}self_attention.linear_proj.weight"] = output.chunk(ranks, 1)[rank].contiguous()
        gate, up = state[f"{theirs}mlp.gate_proj.weight"], state[f"{theirs}mlp.up_proj.weight"]
        fused = torch.cat([gate.chunk(ranks)[rank], up.chunk(ranks)[rank]])
        held[f"{ours}mlp.linear_fc1.weight"] = fused
        held[f"{ours}mlp.linear_fc1.layer_norm_weight"] = state[f"{theirs}post_attention_layernorm.weight"].clone()
        down = state[f"{theirs}mlp.down_proj.weight"]
        held[f"{ours}mlp.linear_fc2.weight"] = down.chunk(ranks, 1)[rank].contiguous()
    if stage[0] == stage[1] - 1:
        held["decoder.final_layernorm.weight"] = state["model.norm.weight"].clone()
        held["output_layer.weight"] = state["lm_head.weight"].chunk(ranks)[rank].contiguous()
    return held
