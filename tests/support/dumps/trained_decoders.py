"""Small decoders as a trainer has them: padded sequences are computed eagerly, as by transformers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msprobe_hooks import record

KINDS = ("dense", "moe", "mla", "window", "tied", "kv8")
VOCABULARY, HIDDEN, HEADS, KV_HEADS, SIZE, MLP = 96, 64, 4, 2, 16, 112
EXPERTS, CHOSEN, EXPERT_MLP = 6, 2, 48
LATENT, ROPE, WINDOW = 24, 8, 8
# The passes of the engine: how many tokens of each sequence are computed in each.
CHUNKS = (8, 12, 1, 1)


@dataclass(frozen=True)
class Decoder:
    """Kind of a decoder, its depth, and the seed of its weights."""

    kind: str
    layers: int
    seed: int = 0

    @property
    def window(self) -> int:
        """The number of positions that a token attends to, 0 for all."""
        return WINDOW if self.kind == "window" else 0


@dataclass(frozen=True)
class Fault:
    """What an engine does wrong, in all layers or in ``layer`` alone."""

    name: str = "healthy"
    scale: float = 1.0
    epsilon: float = 1e-6
    wider: int = 0
    bias: float = 0.0
    stale: float = 0.0
    layer: int | None = None

    def at(self, layer: int) -> Fault:
        """Return what is wrong in a layer."""
        return self if self.layer in (None, layer) else HEALTHY


HEALTHY = Fault()


def weights(decoder: Decoder) -> dict[str, Tensor]:
    """Return random weights by transformers' names, in float32."""
    generator = torch.Generator().manual_seed(decoder.seed)

    def normal(*shape: int, gain: float = 1.2) -> Tensor:
        return torch.randn(*shape, generator=generator) * gain / math.sqrt(shape[-1])

    named = {"model.embed_tokens.weight": normal(VOCABULARY, HIDDEN, gain=0.7 * math.sqrt(HIDDEN))}
    for layer in range(decoder.layers):
        prefix = f"model.layers.{layer}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            named[f"{prefix}{norm}.weight"] = 1 + normal(HIDDEN, gain=0.2 * math.sqrt(HIDDEN))
        attention = {"q_proj": (HEADS * SIZE, HIDDEN), "o_proj": (HIDDEN, HEADS * SIZE)}
        if decoder.kind == "mla":
            attention |= {"q_proj": (HEADS * (SIZE + ROPE), HIDDEN), "kv_a_proj_with_mqa": (LATENT + ROPE, HIDDEN)}
            attention |= {"kv_b_proj": (HEADS * 2 * SIZE, LATENT)}
            named[f"{prefix}self_attn.kv_a_layernorm.weight"] = 1 + normal(LATENT, gain=0.2 * math.sqrt(LATENT))
        else:
            attention |= {"k_proj": (KV_HEADS * SIZE, HIDDEN), "v_proj": (KV_HEADS * SIZE, HIDDEN)}
        mlp = {"gate_proj": (MLP, HIDDEN), "up_proj": (MLP, HIDDEN), "down_proj": (HIDDEN, MLP)}
        if decoder.kind == "moe":
            sizes = {"gate_proj": (EXPERT_MLP, HIDDEN), "up_proj": (EXPERT_MLP, HIDDEN)}
            sizes["down_proj"] = (HIDDEN, EXPERT_MLP)
            mlp = {f"experts.{e}.{name}": size for e in range(EXPERTS) for name, size in sizes.items()}
            mlp["gate"] = (EXPERTS, HIDDEN)
        named |= {f"{prefix}self_attn.{name}.weight": normal(*size) for name, size in attention.items()}
        named |= {f"{prefix}mlp.{name}.weight": normal(*size) for name, size in mlp.items()}
    named["model.norm.weight"] = 1 + normal(HIDDEN, gain=0.2 * math.sqrt(HIDDEN))
    head = normal(VOCABULARY, HIDDEN)
    named["lm_head.weight"] = named["model.embed_tokens.weight"] if decoder.kind == "tied" else head
    return named


class Part(nn.Module):
    """A module made of others."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


def linear(weight: Tensor, *, engine: bool = False) -> nn.Linear:
    made = (EngineLinear if engine else nn.Linear)(weight.shape[1], weight.shape[0], bias=False)
    made.weight = nn.Parameter(weight.clone(), requires_grad=False)
    return made


class EngineLinear(nn.Linear):
    """A linear layer that returns its bias too."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return super().forward(x), None


class Norm(nn.Module):
    """RMS norm; given a residual stream, it adds to it and returns the sum too."""

    def __init__(self, weight: Tensor, epsilon: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.clone(), requires_grad=False)
        self.epsilon = epsilon

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        stream = x if residual is None else x + residual
        wide = stream.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        result = wide.to(x.dtype) * self.weight
        return result if residual is None else (result, stream)


def rotate(x: Tensor, positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Rotate the two halves of each head of (tokens, heads, size) at their positions."""
    size = x.shape[-1]
    angles = positions[:, None].float() / 10000 ** (torch.arange(0, size, 2) / size)
    angles = torch.cat([angles, angles], -1)[:, None]
    left, right = x.to(dtype).chunk(2, -1)
    turned = x.to(dtype) * angles.cos().to(dtype) + torch.cat([-right, left], -1) * angles.sin().to(dtype)
    return turned.to(x.dtype)


def hidden(queries: Tensor, keys: int, window: int) -> Tensor:
    """Return which keys, by position, queries at their positions do not attend to."""
    places = torch.arange(keys)[None]
    late = places > queries[:, None]
    return late | (places <= queries[:, None] - window) if window else late


def rounded_to_float8(x: Tensor) -> Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


class TrainerAttention(Part):
    """Attention of the trainer: every product is rounded."""

    def __init__(self, decoder: Decoder, *, float8: bool, **parts: nn.Module) -> None:
        super().__init__(**parts)
        self.decoder, self.float8 = decoder, float8

    def forward(self, x: Tensor) -> Tensor:
        return self.o_proj(torch.stack([self.attend(sequence) for sequence in x]))

    def attend(self, x: Tensor) -> Tensor:
        positions = torch.arange(len(x))
        if self.decoder.kind == "mla":
            q = self.q_proj(x).view(len(x), HEADS, -1)
            latent, rope = self.kv_a_proj_with_mqa(x).split([LATENT, ROPE], -1)
            k, v = self.kv_b_proj(self.kv_a_layernorm(latent)).view(len(x), HEADS, -1).chunk(2, -1)
            rope = rotate(rope[:, None], positions, x.dtype).expand(-1, HEADS, -1)
            q = torch.cat([q[..., :SIZE], rotate(q[..., SIZE:], positions, x.dtype)], -1)
            k = torch.cat([k, rope], -1)
        else:
            q, k, v = (proj(x).view(len(x), -1, SIZE) for proj in (self.q_proj, self.k_proj, self.v_proj))
            q, k = (rotate(each, positions, x.dtype) for each in (q, k))
            if self.float8:
                k, v = rounded_to_float8(k), rounded_to_float8(v)
            k, v = (each.repeat_interleave(HEADS // KV_HEADS, 1) for each in (k, v))
        scores = q.transpose(0, 1) @ k.permute(1, 2, 0) / math.sqrt(q.shape[-1])
        scores = scores.masked_fill(hidden(positions, len(x), self.decoder.window), -math.inf)
        return (scores.float().softmax(-1).to(x.dtype) @ v.transpose(0, 1)).transpose(0, 1).reshape(len(x), -1)


class TrainerMlp(Part):
    """Gated MLP of the trainer."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class TrainerExperts(Part):
    """Mixture of experts of the trainer, expert by expert."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, HIDDEN)
        weight, chosen = self.gate(rows).float().softmax(-1).topk(CHOSEN, -1)
        weight = (weight / weight.sum(-1, keepdim=True)).to(x.dtype)
        result = torch.zeros_like(rows)
        for number, expert in enumerate(self.experts):
            row, place = (chosen == number).nonzero(as_tuple=True)
            if len(row):
                result.index_add_(0, row, expert(rows[row]) * weight[row, place, None])
        return result.view(x.shape)


class TrainerLayer(Part):
    """Layer of the trainer."""

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class TrainerModel(Part):
    """Model of the trainer, without its head."""

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Trainer(Part):
    """Model of the trainer."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.lm_head(self.model(input_ids))


def own_weights(named: Mapping[str, Tensor], layer: int) -> dict[str, Tensor]:
    """Return the weights of a layer by the names of their modules in it."""
    prefix = f"model.layers.{layer}."
    return {
        name.removeprefix(prefix).removesuffix(".weight"): one for name, one in named.items() if name.startswith(prefix)
    }


def trainer_mlp(own: Mapping[str, Tensor], path: str) -> TrainerMlp:
    return TrainerMlp(**{name: linear(own[f"{path}.{name}"]) for name in ("gate_proj", "up_proj", "down_proj")})


def make_trainer(decoder: Decoder, dtype: torch.dtype, *, float8: bool = False) -> Trainer:
    """Return the trainer's model; ``float8`` rounds keys and values as a quantised cache does."""
    named = weights(decoder)
    layers = []
    for layer in range(decoder.layers):
        own = own_weights(named, layer)
        parts: dict[str, nn.Module] = {
            name.removeprefix("self_attn."): linear(one)
            for name, one in own.items()
            if name.startswith("self_attn.") and one.ndim == 2
        }
        if decoder.kind == "mla":
            parts["kv_a_layernorm"] = Norm(own["self_attn.kv_a_layernorm"])
        if decoder.kind == "moe":
            experts = nn.ModuleList(trainer_mlp(own, f"mlp.experts.{number}") for number in range(EXPERTS))
            mlp: nn.Module = TrainerExperts(gate=linear(own["mlp.gate"]), experts=experts)
        else:
            mlp = trainer_mlp(own, "mlp")
        layers.append(
            TrainerLayer(
                input_layernorm=Norm(own["input_layernorm"]),
                self_attn=TrainerAttention(decoder, float8=float8, **parts),
                post_attention_layernorm=Norm(own["post_attention_layernorm"]),
                mlp=mlp,
            )
        )
    embedding = nn.Embedding.from_pretrained(named["model.embed_tokens.weight"].clone())
    model = TrainerModel(embed_tokens=embedding, layers=nn.ModuleList(layers), norm=Norm(named["model.norm.weight"]))
    return Trainer(model=model, lm_head=linear(named["lm_head.weight"])).to(dtype)


def sequences(seed: int = 5) -> list[list[int]]:
    """Return four sequences of other lengths."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(1, VOCABULARY, (count,), generator=generator).tolist() for count in (11, 15, 19, 13)]


def train(trainer: Trainer, folder: Path, seed: int = 5) -> Path:
    """Record one forward pass over the padded sequences of a seed."""
    tokens = sequences(seed)
    longest = max(map(len, tokens))
    ids = torch.tensor([one + [0] * (longest - len(one)) for one in tokens])
    mask = torch.tensor([[1] * len(one) + [0] * (longest - len(one)) for one in tokens])
    with record(folder, level="L0", model=trainer, task="tensor"), torch.no_grad():
        trainer(input_ids=ids, attention_mask=mask)
    return folder
