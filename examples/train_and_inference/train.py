"""Record transformers on the sequences that serve.py computes: python train.py MODEL FOLDER."""

import sys

import torch
from transformers import AutoModelForCausalLM

from msprobe_hooks import record

SEQUENCES = [[5, 17, 23, 12, 12], [33, 8, 51, 14, 44, 44]]


def train(model, folder):
    trained = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    length = max(map(len, SEQUENCES))
    ids = torch.tensor([tokens + [0] * (length - len(tokens)) for tokens in SEQUENCES])
    mask = torch.tensor([[1] * len(tokens) + [0] * (length - len(tokens)) for tokens in SEQUENCES])
    with (
        record(folder, "L0", model=trained, task="tensor", tensor_files="safetensors", extra_info=False) as session,
        torch.no_grad(),
    ):
        trained(input_ids=ids, attention_mask=mask, use_cache=False)
    print(session.summary)


if __name__ == "__main__":
    train(sys.argv[1], sys.argv[2])
