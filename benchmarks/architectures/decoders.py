"""Language models that predict the next token, of transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import transformers

from architectures.training import Training, architecture, tokens

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "use_cache": False,
}


def causal(
    config: Callable[..., transformers.PretrainedConfig],
    *,
    dtype: torch.dtype = torch.float32,
    attention: str | None = None,
    **options: Any,
) -> Training:
    """Return the training of a language model of these sizes; ``options`` change or add to its configuration."""
    model = transformers.AutoModelForCausalLM.from_config(
        config(**{**SIZES, **options}), attn_implementation=attention, dtype=dtype
    )
    model.train()
    ids = tokens()
    return Training(model, lambda: model(input_ids=ids, labels=ids).loss)


llama = partial(causal, transformers.LlamaConfig)


@architecture("Llama, AdamW parameter by parameter")
def llama_sdpa() -> Training:
    return replace(llama(), optimizer=torch.optim.AdamW)


@architecture("Llama in bfloat16")
def llama_bf16() -> Training:
    return llama(dtype=torch.bfloat16)


@architecture("Llama, eager attention with an additive mask")
def llama_eager() -> Training:
    return llama(attention="eager")


@architecture("Llama under autocast to bfloat16")
def llama_amp_bf16() -> Training:
    return replace(llama(), precision=partial(torch.autocast, "cpu", torch.bfloat16))


@architecture("Llama under autocast to float16, loss scaled by 1024")
def llama_amp_fp16() -> Training:
    return replace(llama(), precision=partial(torch.autocast, "cpu", torch.float16), loss_scale=1024)


@architecture("Llama, each layer recomputed")
def llama_checkpointed() -> Training:
    training = llama()
    training.model.gradient_checkpointing_enable({"use_reentrant": False})
    return training


@architecture("Llama, each layer recomputed, reentrant")
def llama_checkpointed_reentrant() -> Training:
    training = llama()
    training.model.gradient_checkpointing_enable({"use_reentrant": True})
    return training


@architecture("Qwen2, NAdam")
def qwen2() -> Training:
    return replace(causal(transformers.Qwen2Config), optimizer=partial(torch.optim.NAdam, foreach=True))


@architecture("Qwen3, fused AdamW")
def qwen3() -> Training:
    return replace(causal(transformers.Qwen3Config), optimizer=partial(torch.optim.AdamW, lr=1e-3, fused=True))


@architecture("Mixtral, 4 experts")
def mixtral() -> Training:
    return causal(transformers.MixtralConfig, num_local_experts=4)


@architecture("Qwen3-MoE, 4 experts")
def qwen3_moe() -> Training:
    return causal(transformers.Qwen3MoeConfig, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)


@architecture("DeepSeek-V3: latent attention, routed and shared experts")
def deepseek_v3() -> Training:
    return causal(
        transformers.DeepseekV3Config,
        num_key_value_heads=4,
        n_routed_experts=8,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=32,
        num_hidden_layers=2,
        first_k_dense_replace=1,
        q_lora_rank=32,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
    )


@architecture("Gemma 2: soft-capped logits, sliding window")
def gemma2() -> Training:
    return causal(transformers.Gemma2Config, num_hidden_layers=2, head_dim=16, sliding_window=4)


@architecture("GPT-2, SGD with momentum")
def gpt2() -> Training:
    return replace(causal(transformers.GPT2Config), optimizer=partial(torch.optim.SGD, lr=0.1, momentum=0.9))


@architecture("GPT-NeoX: parallel residual")
def gpt_neox() -> Training:
    return causal(transformers.GPTNeoXConfig)


@architecture("OPT")
def opt() -> Training:
    return causal(transformers.OPTConfig, ffn_dim=128, word_embed_proj_dim=64)


@architecture("BLOOM: ALiBi")
def bloom() -> Training:
    return causal(transformers.BloomConfig)


@architecture("Phi: partial rotary embedding")
def phi() -> Training:
    return causal(transformers.PhiConfig)


@architecture("GPT-OSS: attention sinks, batched experts")
def gpt_oss() -> Training:
    return causal(
        transformers.GptOssConfig,
        num_hidden_layers=2,
        head_dim=16,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=4,
    )


@architecture("Mamba")
def mamba() -> Training:
    return causal(transformers.MambaConfig, state_size=8)


@architecture("Mamba 2")
def mamba2() -> Training:
    return causal(transformers.Mamba2Config, num_heads=8, head_dim=16, state_size=16, n_groups=2, chunk_size=4)
