"""huggingface/trl#4159: an engine that samples at a temperature reports probabilities without it."""

import torch
from simulated import record_runs
from torch import nn

from msprobe_hooks import record

TOKENS, TEMPERATURE = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]]), 0.6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens, self.lm_head = nn.Embedding(16, 32), nn.Linear(32, 16, bias=False)

    def forward(self, input_ids):
        return self.lm_head(self.embed_tokens(input_ids))


def run(folder, faulty):
    model = Model().requires_grad_(False)
    with record(folder, "L0", model=model, task="tensor") as recording:
        logits = model(input_ids=TOKENS)[0, :-1]
        reported = (logits if faulty else logits / TEMPERATURE).log_softmax(-1)
        of_tokens = reported.gather(-1, TOKENS[0, 1:, None])[:, 0].tolist()
        recording.note_tokens(["a"], [8], token_ids=TOKENS[0].tolist(), logprobs=[None, *of_tokens])


if __name__ == "__main__":
    record_runs(run)
