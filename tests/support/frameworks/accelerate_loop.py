"""Accelerate: a BERT in bfloat16, two micro batches a step, gradients clipped."""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from tests.support.frameworks.run import Run


def train(run: Run) -> list[Tensor]:
    """Train two steps."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, mixed_precision="bf16")
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
    )
    model = BertForSequenceClassification(config)
    run.plant(model.get_parameter("bert.encoder.layer.1.output.LayerNorm.weight"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.randint(0, 64, (12, 16)), batch_size=3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for number, tokens in enumerate(loader):
        if number % 2 == 0:
            run.start(model)
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens[:, 0] % 2).loss
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        run.losses.append(loss.item())
        if number % 2 == 1:
            run.end_step()
    return list(model.parameters())
