"""TRL's GRPO: sentences are generated within the step, and rewarded for different words."""

from __future__ import annotations

from typing import Any

from datasets import Dataset
from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from tests.support.frameworks.run import Run
from tests.support.frameworks.tiny_llama import ARGUMENTS, Recording, sentences, tiny_llama, tokenizer


def different_words(completions: list[str], **others: Any) -> list[float]:
    """Return how many different words each completion has."""
    return [float(len(set(text.split()))) for text in completions]


def train(run: Run) -> list[Tensor]:
    """Train two steps."""
    model = tiny_llama()
    run.plant(model.get_parameter("model.layers.1.mlp.down_proj.weight"))
    arguments = GRPOConfig(
        str(run.folder / "trainer"), num_generations=2, max_completion_length=8, beta=0.0, **ARGUMENTS
    )
    GRPOTrainer(
        model,
        reward_funcs=different_words,
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": sentences(8, 4)}),
        processing_class=tokenizer(),
        callbacks=[Recording(run)],
    ).train()
    return list(model.parameters())
