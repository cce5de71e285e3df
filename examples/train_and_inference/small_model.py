"""Save a small Llama with random weights, as transformers does: python small_model.py MODEL."""

import sys

import torch
from transformers import LlamaConfig, LlamaForCausalLM

# Heads of 32 elements are the smallest that vLLM's attention on a CPU takes.
CONFIG = LlamaConfig(
    vocab_size=64,
    hidden_size=16,
    intermediate_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=32,
    max_position_embeddings=128,
)

if __name__ == "__main__":
    torch.manual_seed(1)
    model = LlamaForCausalLM(CONFIG)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    model.save_pretrained(sys.argv[1])
