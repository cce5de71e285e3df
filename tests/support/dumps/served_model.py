"""One small decoder twice, as a trainer has it and as an engine serves it, both recorded."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

import msprobe_hooks

VOCABULARY, HIDDEN, HEADS, KV_HEADS, SIZE = 32, 16, 4, 2, 4
SEQUENCES = ([3, 5, 7, 9, 11], [3, 5, 8, 1, 2, 4, 6])


def attend(q: Tensor, k: Tensor, v: Tensor, first: int, scale: float) -> Tensor:
    """Attend from positions ``first`` on to all positions up to each; (tokens, features) each."""
    queries = q.reshape(len(q), HEADS, SIZE).transpose(0, 1)
    keys, values = (
        x.reshape(len(x), KV_HEADS, SIZE).transpose(0, 1).repeat_interleave(HEADS // KV_HEADS, 0) for x in (k, v)
    )
    hidden = torch.arange(len(k))[None, :] > torch.arange(first, first + len(q))[:, None]
    scores = (queries @ keys.transpose(1, 2) * scale).masked_fill(hidden, -math.inf)
    return (scores.softmax(-1) @ values).transpose(0, 1).reshape(len(q), HEADS * SIZE)


class Norm(nn.Module):
    """RMS norm; given a residual stream, it adds to it and returns the sum too, as engines do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(HIDDEN) + 0.5)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        stream = x if residual is None else x + residual
        result = stream * (stream.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight
        return result if residual is None else (result, stream)


class Linear(nn.Linear):
    """A linear layer that returns its bias too, as those of engines do."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return super().forward(x), None


class Part(nn.Module):
    """A module made of others."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class TrainerAttention(Part):
    scale = SIZE**-0.5

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return self.o_proj(torch.stack([attend(*one, 0, self.scale) for one in zip(q, k, v, strict=True)]))


class TrainerMlp(Part):
    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class TrainerLayer(Part):
    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class TrainerModel(Part):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Trainer(Part):
    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.lm_head(self.model(input_ids=input_ids, attention_mask=attention_mask))


class EngineAttention(Part):
    scale = SIZE**-0.5

    def forward(self, x: Tensor, batch: list[tuple[int, int, int]]) -> Tensor:
        widths = [HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE]
        q, k, v = self.qkv_proj(x)[0].split(widths, dim=-1)
        results, row = [], 0
        for request, first, count in batch:
            rows = slice(row, row + count)
            keys, values = self.cache.get(request, (k[:0], v[:0]))
            self.cache[request] = torch.cat([keys[:first], k[rows]]), torch.cat([values[:first], v[rows]])
            results.append(attend(q[rows], *self.cache[request], first, self.scale))
            row += count
        return self.o_proj(torch.cat(results))[0]


class EngineMlp(Part):
    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x)[0].chunk(2, dim=-1)
        return self.down_proj(torch.nn.functional.silu(gate) * up)[0]


class EngineLayer(Part):
    def forward(self, positions: Tensor, x: Tensor, residual: Tensor | None, batch: object) -> tuple[Tensor, Tensor]:
        if residual is None:
            x, residual = self.input_layernorm(x), x
        else:
            x, residual = self.input_layernorm(x, residual)
        x, residual = self.post_attention_layernorm(self.self_attn(x, batch), residual)
        return self.mlp(x), residual


class Engine(Part):
    def forward(self, input_ids: Tensor, positions: Tensor, batch: list[tuple[int, int, int]]) -> Tensor:
        x, residual = self.model.embed_tokens(input_ids), None
        for layer in self.model.layers:
            x, residual = layer(positions, x, residual, batch)
        x, _ = self.model.norm(x, residual)
        last = torch.tensor([count for _, _, count in batch]).cumsum(0) - 1
        return self.logits_processor(x[last])


def make_trainer() -> Trainer:
    """Return the trainer's model, the same each time."""
    torch.manual_seed(0)

    def layer() -> TrainerLayer:
        attention = TrainerAttention(
            q_proj=nn.Linear(HIDDEN, HEADS * SIZE, bias=False),
            k_proj=nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False),
            v_proj=nn.Linear(HIDDEN, KV_HEADS * SIZE, bias=False),
            o_proj=nn.Linear(HEADS * SIZE, HIDDEN, bias=False),
        )
        mlp = TrainerMlp(
            gate_proj=nn.Linear(HIDDEN, 24, bias=False),
            up_proj=nn.Linear(HIDDEN, 24, bias=False),
            down_proj=nn.Linear(24, HIDDEN, bias=False),
        )
        return TrainerLayer(input_layernorm=Norm(), self_attn=attention, post_attention_layernorm=Norm(), mlp=mlp)

    layers = nn.ModuleList([layer(), layer()])
    model = TrainerModel(embed_tokens=nn.Embedding(VOCABULARY, HIDDEN), layers=layers, norm=Norm())
    return Trainer(model=model, lm_head=nn.Linear(HIDDEN, VOCABULARY, bias=False))


def fused(*layers: nn.Module) -> Linear:
    """Return one linear layer with the weights of several."""
    weight = torch.cat([layer.weight.detach() for layer in layers])
    one = Linear(weight.shape[1], weight.shape[0], bias=False)
    one.weight.data.copy_(weight)
    return one


def make_engine(trainer: Trainer) -> Engine:
    """Return the engine's model with the trainer's weights."""
    layers = []
    for layer in trainer.model.layers:
        own, mlp = layer.self_attn, layer.mlp
        attention = EngineAttention(qkv_proj=fused(own.q_proj, own.k_proj, own.v_proj), o_proj=fused(own.o_proj))
        attention.cache = {}
        layers.append(
            EngineLayer(
                input_layernorm=layer.input_layernorm,
                self_attn=attention,
                post_attention_layernorm=layer.post_attention_layernorm,
                mlp=EngineMlp(gate_up_proj=fused(mlp.gate_proj, mlp.up_proj), down_proj=fused(mlp.down_proj)),
            )
        )
    model = Part(embed_tokens=trainer.model.embed_tokens, layers=nn.ModuleList(layers), norm=trainer.model.norm)
    return Engine(model=model, logits_processor=trainer.lm_head)


def train(model: Trainer, folder: Path) -> Path:
    """Record the trainer on both sequences, padded behind."""
    length = max(map(len, SEQUENCES))
    ids = torch.tensor([one + [0] * (length - len(one)) for one in SEQUENCES])
    mask = torch.tensor([[1] * len(one) + [0] * (length - len(one)) for one in SEQUENCES])
    with msprobe_hooks.record(folder, level="L0", model=model, task="tensor"), torch.no_grad():
        model(input_ids=ids, attention_mask=mask)
    return folder


#: The engine's passes: of each request its number, the first position and how many tokens; in chunks, then decoded.
SCHEDULE = (
    [(0, 0, 3), (1, 0, 2)],
    [(0, 3, 1), (1, 2, 3)],
    [(1, 5, 1), (0, 4, 1)],
    [(1, 6, 1)],
)


def serve(model: Engine, folder: Path, temperature: float | None = None) -> Path:
    """Record the engine on the same sequences, packed, a step for each of its passes.

    With a ``temperature`` it notes the log probabilities by which it would have drawn the tokens.
    """
    noted: dict[tuple[int, int], float] = {}
    with msprobe_hooks.record(folder, level="L0", model=model, task="tensor") as session, torch.no_grad():
        for batch in SCHEDULE:
            ids = torch.tensor(
                [token for one, first, count in batch for token in SEQUENCES[one][first : first + count]]
            )
            positions = torch.tensor([place for _, first, count in batch for place in range(first, first + count)])
            if temperature is not None:
                session.note_tokens(
                    [str(one) for one, _, _ in batch],
                    [count for _, _, count in batch],
                    logprobs=[
                        noted.get((one, at)) for one, first, count in batch for at in range(first, first + count)
                    ],
                )
            logits = model(ids, positions, batch) / (temperature or 1.0)
            for (one, first, count), row in zip(batch, logits.log_softmax(-1), strict=True):
                noted[one, first + count] = float(row[[*SEQUENCES[one], 0][first + count]])
            session.step()
    return folder
