"""Recording changes nothing: losses, gradients and random numbers are the same bits with and without it."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from msprobe_hooks import record


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        return x + self.drop(self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.layers = nn.ModuleList(Attention() for _ in range(2))
        self.head = nn.Linear(8, 16)

    def forward(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Checkpointed(Transformer):
    def forward(self, ids):
        x = self.embed(ids)
        for place, layer in enumerate(self.layers):
            x = checkpoint(layer, x, use_reentrant=bool(place))
        return self.head(x)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 16)
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(16, 16)

    def forward(self, ids):
        x = self.body(self.embed(ids).unsqueeze(1))
        return self.head(x.flatten(1)[:, :16]).unsqueeze(1).expand(-1, ids.shape[1], -1)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.rnn = nn.LSTM(8, 8, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(8, 16)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


class InPlaceViews(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.head = nn.Linear(8, 16)

    def forward(self, ids):
        x = self.embed(ids) * 1.0
        x[:, 0] *= 2.0
        x[:, 1:].add_(x[:, :-1].clone())
        left, right = x.view(-1, 8).split(4, 1)
        y = torch.cat([left.relu().clone().mul_(3.0), right.data.abs() + right], 1)
        return self.head(y.view_as(x))


class Autocast(Transformer):
    def forward(self, ids):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(ids).float()


FAMILIES = [Transformer, Checkpointed, Convolutional, Recurrent, InPlaceViews, Autocast]


def train(family, around):
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    model = family()
    ids = torch.randint(0, 16, (2, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    seen = []
    for step in range(2):
        optimizer.zero_grad()
        with around(model, step):
            loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        seen += [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
    seen += [*(parameter.detach() for parameter in model.parameters()), torch.get_rng_state()]
    return seen, random.random(), np.random.rand()


class Nothing:
    def __init__(self, *_):
        pass

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "options",
    [
        {"level": "L1"},
        {"level": "mix"},
        {"level": "aten"},
        {"level": "mix", "task": "tensor"},
        {"level": "L1", "summary_mode": "md5"},
    ],
    ids=str,
)
def test_losses_gradients_weights_and_random_numbers_stay_the_same(tmp_path, family, options):
    want, *numbers = train(family, Nothing)
    sessions = []

    def around(model, step):
        context = record(tmp_path / f"{step}", model=model, **options)

        class Kept:
            def __enter__(self):
                sessions.append(context.__enter__())

            def __exit__(self, *error):
                context.__exit__(*error)

        return Kept()

    got, *got_numbers = train(family, around)
    assert got_numbers == numbers
    for one, other in zip(want, got, strict=True):
        assert torch.equal(one, other)
    assert all(session.summary.errors == {} for session in sessions)
    assert all(session.summary.records for session in sessions)


class Compiled(Transformer):
    def __init__(self):
        super().__init__()
        self.layers[1] = torch.compile(self.layers[1], backend="eager")


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_model_with_a_compiled_layer_computes_the_same(tmp_path):
    torch._dynamo.reset()
    want, *_ = train(Compiled, Nothing)
    torch._dynamo.reset()
    got, *_ = train(Compiled, lambda model, step: record(tmp_path / f"{step}", "mix", model=model))
    for one, other in zip(want, got, strict=True):
        assert torch.equal(one, other)
