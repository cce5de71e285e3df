"""A trainer, and an engine of two tensor parallel ranks that misses a part of an update.

The trainer has the names of transformers, the engine those of vLLM, with queries, keys and values in one parameter.
"""

import sys

import torch

from msprobe_hooks import write_weights

HEADS, KV_HEADS, HEAD_DIM, HIDDEN, INNER = 8, 4, 8, 64, 96
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD_DIM, "hidden_size": HIDDEN}


def trained() -> dict[str, torch.Tensor]:
    """Return the trainer's weights before its first step."""
    weights = {"model.embed_tokens.weight": torch.randn(128, HIDDEN)}
    for layer in range(2):
        prefix = f"model.layers.{layer}"
        for name, heads in (("q_proj", HEADS), ("k_proj", KV_HEADS), ("v_proj", KV_HEADS)):
            weights[f"{prefix}.self_attn.{name}.weight"] = torch.randn(heads * HEAD_DIM, HIDDEN)
        weights[f"{prefix}.self_attn.o_proj.weight"] = torch.randn(HIDDEN, HEADS * HEAD_DIM)
        weights[f"{prefix}.mlp.gate_proj.weight"] = torch.randn(INNER, HIDDEN)
        weights[f"{prefix}.mlp.up_proj.weight"] = torch.randn(INNER, HIDDEN)
        weights[f"{prefix}.mlp.down_proj.weight"] = torch.randn(HIDDEN, INNER)
        weights[f"{prefix}.input_layernorm.weight"] = torch.ones(HIDDEN)
        weights[f"{prefix}.post_attention_layernorm.weight"] = torch.ones(HIDDEN)
    weights["model.norm.weight"] = torch.ones(HIDDEN)
    return {name: weight.bfloat16() for name, weight in weights.items()}


def loaded(weights: dict[str, torch.Tensor], rank: int) -> dict[str, torch.Tensor]:
    """Return what one of two ranks of the engine makes of the trainer's weights."""
    held = {}
    for name, weight in weights.items():
        if name.endswith(("q_proj.weight", "gate_proj.weight")):
            fused, parts = (
                ("qkv_proj", ("q_proj", "k_proj", "v_proj"))
                if "q_proj" in name
                else (
                    "gate_up_proj",
                    ("gate_proj", "up_proj"),
                )
            )
            own = parts[0]
            held[name.replace(own, fused)] = torch.cat(
                [weights[name.replace(own, part)].chunk(2)[rank] for part in parts]
            )
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            held[name] = weight.chunk(2, dim=1)[rank]
        elif name.endswith("embed_tokens.weight"):
            held[name] = weight.chunk(2)[rank]
        elif not name.endswith(("k_proj.weight", "v_proj.weight", "up_proj.weight")):
            held[name] = weight
    return held


torch.manual_seed(0)
before = trained()
after = {name: weight + 0.01 * torch.randn_like(weight) for name, weight in before.items()}
write_weights(before, "weights/trainer", step=0, config=CONFIG)
write_weights(after, "weights/trainer", step=1, config=CONFIG)
for rank in range(2):
    engine = loaded(after, rank)
    if "--faulty" in sys.argv:
        old = loaded(before, rank)
        name = "model.layers.1.self_attn.qkv_proj.weight"
        # The second rank's keys and values stay those of the step before.
        engine[name][-32:] = old[name][-32:] if rank else engine[name][-32:]
        if rank:
            engine["model.layers.0.mlp.down_proj.weight"] = old["model.layers.0.mlp.down_proj.weight"]
        engine["model.norm.weight"] = old["model.norm.weight"]
    # A running engine of vLLM or SGLang, or one of Megatron, knows its layout.
    write_weights(engine.items(), "weights/engine", step=1, rank=rank, layout={"tp": (rank, 2)})
