"""transformers' Trainer: a Llama, gradient checkpointing, two micro batches a step."""

from __future__ import annotations

from torch import Tensor
from transformers import Trainer, TrainingArguments

from tests.support.frameworks.run import Run
from tests.support.frameworks.tiny_llama import ARGUMENTS, Recording, tiny_llama, token_ids


def train(run: Run) -> list[Tensor]:
    model = tiny_llama()
    run.plant(model.get_parameter("model.layers.1.mlp.up_proj.weight"))
    data = [{"input_ids": row, "labels": row} for row in token_ids(16, 16)]
    arguments = TrainingArguments(
        str(run.folder / "trainer"), gradient_accumulation_steps=2, gradient_checkpointing=True, **ARGUMENTS
    )
    Trainer(model, arguments, train_dataset=data, callbacks=[Recording(run)]).train()
    return list(model.parameters())
