"""Records ``tests/data/verdict_quality/layers``: calls with dropout inside, and calls that write to their arguments.

Run it as ``python -m tests.corpus.record_layers FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from msprobe_hooks import record
from tests.corpus.differentiated import backward, leaf


def main() -> None:
    """Record one pass."""
    torch.manual_seed(0)
    with record(Path(sys.argv[1]), level="L1", task="statistics"):
        attention()
        attention_layer()
        recurrent()
        dropout()
        in_place()


def attention() -> None:
    """Attention with dropout: grouped and with a mask that is added, with one that hides, and causal."""
    query, key, value = leaf(2, 4, 24, 16), leaf(2, 2, 24, 16), leaf(2, 2, 24, 16)
    added = torch.randn(2, 1, 24, 24)
    backward(F.scaled_dot_product_attention(query, key, value, added, 0.2, scale=0.3, enable_gqa=True))
    seen = torch.rand(2, 1, 24, 24) < 0.7
    seen[..., 0] = True
    query, key, value = (leaf(2, 4, 24, 16).bfloat16() for _ in range(3))
    backward(F.scaled_dot_product_attention(query, key, value, seen, 0.2))
    backward(F.scaled_dot_product_attention(query.float(), key.float(), value.float(), dropout_p=0.1, is_causal=True))


def attention_layer() -> None:
    """A whole attention layer, with a padding mask."""
    layer = torch.nn.MultiheadAttention(24, 3, dropout=0.2, batch_first=True)
    torch.nn.init.normal_(layer.in_proj_bias)
    x = leaf(3, 10, 24)
    hidden = torch.zeros(3, 10, dtype=torch.bool)
    hidden[:, 7:] = True
    backward(layer(x, x, x, key_padding_mask=hidden)[0])


def recurrent() -> None:
    """Recurrent networks of two layers, with dropout in between."""
    for layer in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        backward(layer(12, 16, num_layers=2, dropout=0.3, batch_first=True)(leaf(3, 7, 12))[0])
    backward(torch.nn.RNN(12, 16, num_layers=2, dropout=0.3, nonlinearity="relu")(leaf(7, 3, 12))[0])


def dropout() -> None:
    """The other kinds of dropout, and slopes that are drawn."""
    x = leaf(32, 16, 8, 8)
    backward(F.alpha_dropout(x, 0.2, True))
    backward(F.dropout2d(x, 0.2, True))
    backward(F.rrelu(x, 0.1, 0.4, True))
    F.dropout(x.detach().clone(), 0.2, True, True)


def in_place() -> None:
    """Calls that write to an argument, returned or not, with and without gradients."""
    for dtype in (torch.float32, torch.bfloat16):
        x, y = (torch.randn(16, 24).to(dtype) for _ in range(2))
        x.add_(y, alpha=0.7)
        x.mul_(1.3)
        x *= y
        x.clamp_(-1.0, 1.0)
        x.copy_(y)
        x.masked_fill_(y > 0, 0.25)
        x[3:7] = y[1:5]
        F.relu(x, inplace=True)
        torch.add(x, y, out=torch.zeros_like(x))
        torch.mul(x, 0.3, out=torch.zeros_like(x))
        torch._foreach_add_([x, y], [y, x.clone()], alpha=0.5)
        torch._foreach_mul_([x, y], 1.7)
        torch._foreach_lerp_([x, y], [y.clone(), x.clone()], 0.3)
    x = leaf(16, 24)
    backward(F.relu(x * 1, inplace=True))
    backward((x * 1).mul_(1.7))
    F.batch_norm(torch.randn(8, 6, 5), torch.randn(6), torch.rand(6) + 0.5, torch.ones(6), torch.zeros(6), True)
    F.relu(torch.randn(16, 24))
    torch.exp(torch.randn(16, 24))


if __name__ == "__main__":
    main()
