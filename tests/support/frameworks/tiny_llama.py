"""A Llama of three layers with random weights, a tokenizer of sixty words, and what is trained on."""

from __future__ import annotations

import random
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback

from tests.support.frameworks.run import Run

WORDS = [f"w{number}" for number in range(60)]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>"]
VOCABULARY = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}

#: What every Trainer is given: two steps on a CPU, nothing saved, nothing reported.
ARGUMENTS: dict[str, Any] = {
    "max_steps": 2,
    "per_device_train_batch_size": 2,
    "use_cpu": True,
    "bf16": False,
    "report_to": [],
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
    "dataloader_pin_memory": False,
}


def tiny_llama() -> LlamaForCausalLM:
    """Return the model."""
    config = LlamaConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer that splits at spaces."""
    words = Tokenizer(models.WordLevel(VOCABULARY, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    names = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=words, **names)


def sentences(count: int, length: int, seed: int = 0) -> list[str]:
    """Return sentences of random words."""
    drawn = random.Random(seed)
    return [" ".join(drawn.choices(WORDS, k=length)) for _ in range(count)]


def token_ids(*shape: int) -> Tensor:
    """Return random words as their numbers."""
    return torch.randint(len(SPECIAL), len(VOCABULARY), shape)


class Recording(TrainerCallback):
    """The lines of docs/integrations.md, and the losses that the Trainer logs."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:
        self.run.start(model)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.run.end_step()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
        if "loss" in logs:
            self.run.losses.append(logs["loss"])
