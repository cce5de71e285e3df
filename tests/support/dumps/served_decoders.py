"""Small decoders as an engine serves them, with faults to plant, next to those of `trained_decoders`.

The engine packs sequences, cuts them into chunks, keeps keys and values in a cache, and rounds where fused kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msprobe_hooks import record
from tests.support.dumps.trained_decoders import (
    CHOSEN,
    CHUNKS,
    EXPERTS,
    HEADS,
    HEALTHY,
    KV_HEADS,
    LATENT,
    ROPE,
    SIZE,
    Decoder,
    Fault,
    Norm,
    Part,
    hidden,
    linear,
    own_weights,
    rotate,
    rounded_to_float8,
    sequences,
    weights,
)


class Rotary(nn.Module):
    """Rotary embedding of an engine, which rotates queries and keys in float32."""

    def forward(self, positions: Tensor, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        return tuple(  # type: ignore[return-value]
            rotate(each.view(len(each), -1, SIZE), positions, torch.float32).reshape(each.shape)
            for each in (query, key)
        )


def by_request(counts: Sequence[int], *rows: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Yield the rows of each request of tensors that have so many of each."""
    return zip(*(one.split(list(counts)) for one in rows), strict=True)


class EngineAttention(Part):
    """Attention of the engine: a cache, and one rounding of what the fused kernel returns."""

    def __init__(self, decoder: Decoder, fault: Fault, **parts: nn.Module) -> None:
        super().__init__(**parts)
        self.decoder, self.fault = decoder, fault
        self.cache: dict[int, tuple[Tensor, ...]] = {}

    def forward(self, positions: Tensor, x: Tensor, counts: Sequence[int]) -> Tensor:
        attend = self.latent if self.decoder.kind == "mla" else self.grouped
        return self.o_proj(attend(positions, x, counts))[0]

    def grouped(self, positions: Tensor, x: Tensor, counts: Sequence[int]) -> Tensor:
        q, k, v = self.qkv_proj(x)[0].split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], -1)
        q, k = self.rotary_emb(positions, q, k)
        if self.decoder.kind == "kv8":
            k, v = rounded_to_float8(k), rounded_to_float8(v)
        results = []
        for number, (own, *each) in enumerate(by_request(counts, positions, q, k, v)):
            queries, keys, values = (one.view(len(own), -1, SIZE) for one in each)
            keys, values = self.cached(number, keys, values)
            results.append(self.product(own, queries, keys, values))
        return torch.cat(results)

    def latent(self, positions: Tensor, x: Tensor, counts: Sequence[int]) -> Tensor:
        """Attend to latents: what makes keys and values of them is multiplied into queries and results."""
        q = self.q_proj(x)[0].view(len(x), HEADS, -1)
        latent, rope = self.kv_a_proj_with_mqa(x)[0].split([LATENT, ROPE], -1)
        latent, rope = self.kv_a_layernorm(latent), rotate(rope[:, None], positions, torch.float32)[:, 0]
        up_k, up_v = self.kv_b_proj.weight.view(HEADS, -1, LATENT).chunk(2, 1)
        rotated = rotate(q[..., SIZE:], positions, torch.float32)
        q = torch.cat([torch.einsum("nhs,hsl->nhl", q[..., :SIZE], up_k), rotated], -1)
        results = []
        for number, (own, queries, *each) in enumerate(by_request(counts, positions, q, latent, rope)):
            latents, ropes = self.cached(number, *each)
            keys = torch.cat([latents, ropes], -1)[:, None]
            of_latents = self.product(own, queries, keys, latents[:, None], SIZE + ROPE)
            of_latents = of_latents.view(len(own), HEADS, LATENT)
            results.append(torch.einsum("nhl,hsl->nhs", of_latents, up_v).reshape(len(own), -1))
        return torch.cat(results)

    def cached(self, number: int, *new: Tensor) -> tuple[Tensor, ...]:
        known = self.cache.get(number)
        self.cache[number] = new if known is None else tuple(map(torch.cat, zip(known, new, strict=True)))
        return self.cache[number]

    def product(self, positions: Tensor, q: Tensor, k: Tensor, v: Tensor, size: int = SIZE) -> Tensor:
        q, k, v = (each.float().transpose(0, 1) for each in (q, k, v))
        k, v = (each.repeat_interleave(HEADS // len(each), 0) for each in (k, v))
        window = self.decoder.window and self.decoder.window + self.fault.wider
        scores = q @ k.transpose(1, 2) * (self.fault.scale / math.sqrt(size))
        scores = scores.masked_fill(hidden(positions, k.shape[1], window), -math.inf)
        result = (scores.softmax(-1) @ v).transpose(0, 1).reshape(len(positions), -1)
        return result.to(self.o_proj.weight.dtype)


class SiluAndMul(nn.Module):
    """Activation of an engine, rounded once."""

    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.float().chunk(2, -1)
        return (F.silu(gate) * up).to(x.dtype)


class EngineMlp(Part):
    """Gated MLP of the engine, fused."""

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(self.act_fn(self.gate_up_proj(x)[0]))[0]


class FusedExperts(nn.Module):
    """All experts in one kernel."""

    def __init__(self, w13: Tensor, w2: Tensor) -> None:
        super().__init__()
        self.w13_weight, self.w2_weight = (nn.Parameter(one, requires_grad=False) for one in (w13, w2))

    def forward(self, hidden_states: Tensor, router_logits: Tensor) -> Tensor:
        weight, chosen = router_logits.float().softmax(-1).topk(CHOSEN, -1)
        weight = weight / weight.sum(-1, keepdim=True)
        result = torch.zeros_like(hidden_states, dtype=torch.float32)
        for place in range(CHOSEN):
            both = torch.einsum("nmh,nh->nm", self.w13_weight[chosen[:, place]], hidden_states)
            inner = SiluAndMul()(both)
            outer = torch.einsum("nhm,nm->nh", self.w2_weight[chosen[:, place]], inner)
            result += outer.float() * weight[:, place, None]
        return result.to(hidden_states.dtype)


class EngineExperts(Part):
    """Mixture of experts of the engine."""

    def __init__(self, bias: float, **parts: nn.Module) -> None:
        super().__init__(**parts)
        self.bias = bias * torch.randn(EXPERTS, generator=torch.Generator().manual_seed(3))

    def forward(self, x: Tensor) -> Tensor:
        logits = self.gate(x)[0]
        return self.experts(hidden_states=x, router_logits=logits + self.bias.to(logits.dtype))


class EngineLayer(Part):
    """Layer of the engine, which carries the residual stream."""

    def forward(
        self, positions: Tensor, x: Tensor, residual: Tensor | None, counts: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        if residual is None:
            x, residual = self.input_layernorm(x), x
        else:
            x, residual = self.input_layernorm(x, residual)
        x = self.self_attn(positions, x, counts)
        x, residual = self.post_attention_layernorm(x, residual)
        return self.mlp(x), residual


class EngineModel(Part):
    """Model of the engine, without its head."""

    def forward(self, input_ids: Tensor, positions: Tensor, counts: Sequence[int]) -> Tensor:
        x, residual = self.embed_tokens(input_ids), None
        for layer in self.layers:
            x, residual = layer(positions, x, residual, counts)
        return self.norm(x, residual)[0]


class Engine(Part):
    """Model of the engine."""

    def forward(self, input_ids: Tensor, positions: Tensor, counts: Sequence[int]) -> Tensor:
        return self.lm_head(self.model(input_ids, positions, counts))


def gate_and_up(own: Mapping[str, Tensor], path: str) -> Tensor:
    return torch.cat([own[f"{path}.gate_proj"], own[f"{path}.up_proj"]])


def moved(weight: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Return a weight as of another step: so far off, as a share of its norm."""
    return weight + share * weight.square().mean().sqrt() * torch.randn(weight.shape, generator=generator)


def make_engine(decoder: Decoder, dtype: torch.dtype, fault: Fault = HEALTHY) -> Engine:
    """Return the engine's model with a fault."""
    named = weights(decoder)
    generator = torch.Generator().manual_seed(77)
    layers = []
    for layer in range(decoder.layers):
        here, own = fault.at(layer), own_weights(named, layer)
        if here.stale:
            own = {name: moved(one, here.stale, generator) for name, one in own.items()}
        parts: dict[str, nn.Module] = {"o_proj": linear(own["self_attn.o_proj"], engine=True)}
        if decoder.kind == "mla":
            names = ("q_proj", "kv_a_proj_with_mqa", "kv_b_proj")
            parts |= {name: linear(own[f"self_attn.{name}"], engine=True) for name in names}
            parts["kv_a_layernorm"] = Norm(own["self_attn.kv_a_layernorm"], here.epsilon)
        else:
            parts["qkv_proj"] = linear(torch.cat([own[f"self_attn.{name}_proj"] for name in "qkv"]), engine=True)
            parts["rotary_emb"] = Rotary()
        if decoder.kind == "moe":
            numbers = range(EXPERTS)
            fused = FusedExperts(
                torch.stack([gate_and_up(own, f"mlp.experts.{number}") for number in numbers]),
                torch.stack([own[f"mlp.experts.{number}.down_proj"] for number in numbers]),
            )
            mlp: nn.Module = EngineExperts(here.bias, gate=linear(own["mlp.gate"], engine=True), experts=fused)
        else:
            mlp = EngineMlp(
                gate_up_proj=linear(gate_and_up(own, "mlp"), engine=True),
                act_fn=SiluAndMul(),
                down_proj=linear(own["mlp.down_proj"], engine=True),
            )
        layers.append(
            EngineLayer(
                input_layernorm=Norm(own["input_layernorm"], here.epsilon),
                self_attn=EngineAttention(decoder, here, **parts),
                post_attention_layernorm=Norm(own["post_attention_layernorm"], here.epsilon),
                mlp=mlp,
            )
        )
    embedding = nn.Embedding.from_pretrained(named["model.embed_tokens.weight"].clone())
    last = Norm(named["model.norm.weight"], HEALTHY.epsilon if fault.layer is not None else fault.epsilon)
    model = EngineModel(embed_tokens=embedding, layers=nn.ModuleList(layers), norm=last)
    return Engine(model=model, lm_head=linear(named["lm_head.weight"])).to(dtype)


def serve(engine: Engine, folder: Path, seed: int = 5) -> Path:
    """Record the passes of an engine over the same sequences: chunks, then tokens one by one."""
    tokens = sequences(seed)
    done = [0] * len(tokens)
    with record(folder, level="L0", model=engine, task="tensor") as session, torch.no_grad():
        for length in CHUNKS:
            # The last tokens are decoded one by one.
            kept = CHUNKS.count(1) if length > 1 else 0
            left = [len(one) - first - kept for one, first in zip(tokens, done, strict=True)]
            counts = [min(length, count) for count in left]
            spans = [range(first, first + count) for first, count in zip(done, counts, strict=True)]
            positions = [place for span in spans for place in span]
            ids = [one[place] for one, span in zip(tokens, spans, strict=True) for place in span]
            session.note_tokens([f"r{number}" for number in range(len(tokens))], counts, starts=done, token_ids=ids)
            engine(torch.tensor(ids), torch.tensor(positions), counts)
            done = [first + count for first, count in zip(done, counts, strict=True)]
            session.step()
    return folder
