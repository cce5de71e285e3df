"""Which values a run computed before which others, in blocks of its model, and how many experts its tokens have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import record
from pytest_msprobe.extensions.inference.passes import read_passes
from pytest_msprobe.extensions.inference.run_values import RunValues, block_numbers
from pytest_msprobe.extensions.inference.token_errors import experts_per_token
from pytest_msprobe.extensions.model_names.fused_parts import sizes_of_config
from pytest_msprobe.extensions.model_names.model_names import model_names


class Chain(nn.Module):
    """Runs its parts one after another."""

    def __init__(self, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, x: Tensor) -> Tensor:
        for part in self.children():
            for one in part if isinstance(part, nn.ModuleList) else [part]:
                x = one(x)
        return x


class Decoder(nn.Module):
    """A vision tower, a decoder, and a layer that predicts further tokens."""

    def __init__(self) -> None:
        super().__init__()
        linear = nn.Linear
        blocks = nn.ModuleList(Chain(mlp=linear(4, 4)) for _ in range(3))
        self.visual = Chain(patch_embed=linear(4, 4), blocks=blocks, merger=linear(4, 4))
        layers = nn.ModuleList(Chain(self_attn=linear(4, 4), mlp=linear(4, 4)) for _ in range(2))
        self.model = Chain(embed_tokens=nn.Embedding(8, 4), layers=layers, norm=nn.LayerNorm(4))
        self.mtp = Chain(layers=nn.ModuleList([Chain(eh_proj=linear(4, 4))]))
        self.final_logits_scale = nn.Identity()
        self.lm_head = linear(4, 8)

    def forward(self, input_ids: Tensor, pixels: Tensor) -> Tensor:
        self.visual(pixels)
        return self.final_logits_scale(self.lm_head(self.mtp(self.model(input_ids))))


def values_of(model: nn.Module, folder: Path, *inputs: Tensor, config: dict[str, object] | None = None) -> RunValues:
    with record(folder, level="L0", model=model, task="tensor"), torch.no_grad():
        model(*inputs)
    names = model_names(())
    return RunValues(read_passes(folder, names), names, sizes_of_config(config or {}))


def test_a_module_lies_behind_the_blocks_that_ended_before_it(tmp_path):
    run = values_of(Decoder(), tmp_path / "run", torch.arange(5)[None], torch.ones(1, 5, 4))
    found = block_numbers(run)
    assert {name: number for name, number in found.items() if name.startswith("visual")} == {
        "visual.patch_embed": 0,
        **{f"visual.blocks.{place}{tail}": 2 * place + 2 for place in range(3) for tail in (".mlp", "")},
        "visual.merger": 7,
        "visual": 7,
    }
    assert {name: number for name, number in found.items() if not name.startswith("visual")} == {
        "embed_tokens": 0,
        "layers.0.self_attn": 7,
        "layers.0.mlp": 8,
        "layers.0": 8,
        "layers.1.self_attn": 9,
        "layers.1.mlp": 10,
        "layers.1": 10,
        "norm.input": 11,
        "norm": 11,
        "model": 11,
        "mtp.layers.0.eh_proj": 12,
        "mtp.layers.0": 12,
        "mtp": 13,
        "final_logits_scale": 13,
        "lm_head": 13,
    }


class Mixture(nn.Module):
    """Two of four experts for each token, one by one or all in one module that may be given their numbers."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.gate = nn.Linear(4, 4)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(4)) if kind == "one by one" else Experts()

    def forward(self, x: Tensor) -> Tensor:
        chosen = self.gate(x).topk(2, dim=-1).indices
        if self.kind == "numbers":
            return self.experts(x, chosen)
        if self.kind == "one module":
            return self.experts(x)
        return sum(
            torch.zeros_like(x).index_add(0, rows, expert(x[rows]))
            for number, expert in enumerate(self.experts)
            if len(rows := (chosen == number).nonzero()[:, 0])
        )


class Experts(nn.Module):
    def forward(self, x: Tensor, *numbers: Tensor) -> Tensor:
        return x + sum(map(torch.numel, numbers))


class MixtureModel(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(8, 4)
        self.layers = nn.ModuleList([Chain(mlp=Mixture(kind))])

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.layers[0](self.embed_tokens(input_ids))


@pytest.mark.parametrize(
    ("kind", "config", "count"),
    [
        ("one by one", {}, 2),
        ("numbers", {}, 2),
        ("one module", {}, 0),
        ("one module", {"num_experts_per_tok": 2}, 2),
        ("one module", {"text_config": {"moe_router_topk": 2}}, 2),
    ],
)
def test_how_many_experts_a_token_has_is_known_by_what_experts_were_given_or_by_the_configuration(
    tmp_path, kind, config, count
):
    torch.manual_seed(0)
    run = values_of(MixtureModel(kind), tmp_path / "run", torch.arange(6), config=config)
    assert experts_per_token("layers.0.mlp.gate", run) == count
