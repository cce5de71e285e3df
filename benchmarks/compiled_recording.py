"""A compiled training step that is recorded, over the same step that is not, in pairs: medians of processor time.

    python benchmarks/compiled_recording.py

A recorded step includes writing its files. Sizes: a GPT-like model of width 256 with 4 layers on 4 x 128 tokens, and
16 layers of 64 x 64.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from msprobe_hooks import record


class Block(nn.Module):
    """Attention and a feed-forward part of width ``width``."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` of (batch, tokens, width) with both parts added."""
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in self.qkv(self.first(x)).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.second(x))))


def gpt() -> tuple[nn.Module, Tensor]:
    """Return the realistic model and its input."""
    return nn.Sequential(*(Block(256, 8) for _ in range(4))), torch.randn(4, 128, 256)


def tiny() -> tuple[nn.Module, Tensor]:
    """Return the model of small kernels and its input."""
    layers = [layer for _ in range(16) for layer in (nn.Linear(64, 64), nn.GELU())]
    return nn.Sequential(*layers), torch.randn(64, 64)


def ratio(model: nn.Module, x: Tensor, pairs: int, *, has_golden: bool) -> tuple[float, float, int]:
    """Return seconds of a plain and of a recorded step, medians of so many pairs, and the calls of a step."""
    compiled = torch.compile(model)

    def step() -> None:
        compiled(x).square().mean().backward()

    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as folder:
        golden = {"golden_path": Path(folder) / "golden"} if has_golden else {}
        with record(Path(folder) / "compiled", level="compiled", quiet=True, **golden) as session:
            step()
            calls = session.recorder.calls
            session.step()
            for _ in range(pairs):
                session.stop()
                plain.append(_seconds(step))
                session.start()
                recorded.append(_seconds(step, session.step))
    return statistics.median(plain), statistics.median(recorded), calls


def _seconds(*parts: Callable[[], None]) -> float:
    started = time.process_time()
    for part in parts:
        part()
    return time.process_time() - started


def main() -> None:
    """Print a line for each size, without and with golden values."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--sizes", nargs="*", default=["gpt", "tiny"], choices=["gpt", "tiny"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    for size in options.sizes:
        for has_golden in (False, True):
            torch.manual_seed(0)
            model, x = {"gpt": gpt, "tiny": tiny}[size]()
            plain, recorded, calls = ratio(model, x, options.pairs, has_golden=has_golden)
            what = "with golden values" if has_golden else "statistics"
            print(
                f"{size}, {what}: {calls} kernels, {plain * 1e3:.2f} ms plain, {recorded * 1e3:.2f} ms recorded, "
                f"{recorded / plain:.2f} times",
                flush=True,
            )


if __name__ == "__main__":
    main()
