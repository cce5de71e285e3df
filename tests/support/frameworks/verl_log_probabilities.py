"""``python -m tests.support.frameworks.verl_log_probabilities FOLDER``: records veRL's log probabilities of a rollout.

``forward_step`` of veRL's FSDP engine is its own, with a model that is not sharded: it packs the sequences, divides the
logits by the temperature in place, and takes the log probabilities. The rollout samples from the same model.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import msprobe_hooks
from tests.support.frameworks.process import let_torchvision_load
from tests.support.frameworks.started import VERL

let_torchvision_load()

from tests.support.frameworks.tiny_llama import tiny_llama, token_ids  # noqa: E402

TEMPERATURE = 0.6
PROMPTS = (3, 5)
RESPONSE = 7


def sampled(model: nn.Module, prompt: int) -> tuple[Tensor, list[float]]:
    """Return the tokens of a prompt and its response, and the log probabilities of the response, in float64."""
    tokens, values = token_ids(1, prompt), []
    for _ in range(RESPONSE):
        probabilities = (model(input_ids=tokens).logits[0, -1].double() / TEMPERATURE).softmax(-1)
        token = probabilities.multinomial(1)
        values.append(probabilities[token].log().item())
        tokens = torch.cat([tokens, token[None]], dim=1)
    return tokens[0], values


def engine_of(model: nn.Module) -> Any:
    """Return veRL's engine around a model; what builds it needs CUDA."""
    sys.path.append(str(VERL))
    from verl.workers.engine.fsdp import transformer_impl

    transformer_impl.get_device_id = transformer_impl.get_device_name = lambda: "cpu"
    engine = object.__new__(transformer_impl.FSDPEngineWithLMHead)
    engine.module = model
    engine.pad_to_length = engine.use_ulysses_sp = False
    engine._autocast_dtype = torch.float32
    return engine


def micro_batch(sequences: list[Tensor]) -> Any:
    """Return sequences of different lengths as veRL has them: one after another, without padding."""
    from tensordict import TensorDict

    positions = [torch.arange(len(one)) for one in sequences]
    batch = {
        "input_ids": torch.nested.nested_tensor(sequences, layout=torch.jagged),
        "position_ids": torch.nested.nested_tensor(positions, layout=torch.jagged),
        "temperature": torch.full((len(sequences),), TEMPERATURE),
    }
    return TensorDict(batch, batch_size=len(sequences))


def main(folder: Path) -> None:
    """Record the step with the rollout's values noted, and once more without; print how far veRL's are from them."""
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    model = tiny_llama().eval()
    sequences, values = zip(*(sampled(model, prompt) for prompt in PROMPTS), strict=True)
    engine, batch = engine_of(model), micro_batch(list(sequences))
    noted = [one for prompt, response in zip(PROMPTS, values, strict=True) for one in [None] * prompt + response]
    with msprobe_hooks.record(folder / "rollout", "L0", model=model, task="tensor") as session:
        session.note_tokens(range(len(PROMPTS)), [len(one) for one in sequences], logprobs=noted)
        _, output = engine.forward_step(batch, loss_function=None, forward_only=True)
    with msprobe_hooks.record(folder / "trainer", "L0", model=model, task="tensor"):
        engine.forward_step(batch, loss_function=None, forward_only=True)
    computed = output["model_output"]["log_probs"].unbind()
    for prompt, response, one in zip(PROMPTS, values, computed, strict=True):
        # That of a token is where the one before it is.
        sys.stdout.write(f"{(one[prompt - 1 : -1] - torch.tensor(response)).abs().max().item()}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
