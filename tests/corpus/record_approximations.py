"""Records ``tests/data/verdict_quality/approximations``: what coarse approximations show on, in 16 bits.

Run it as ``python -m tests.corpus.record_approximations FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F

from msprobe_hooks import record


def main() -> None:
    """Record each call once, with inputs that are made beforehand."""
    torch.manual_seed(0)
    half, bfloat16 = torch.float16, torch.bfloat16
    x, small = (2 * torch.randn(32, 64)).to(half), torch.randn(8, 16).to(half)
    positive = (x.abs() + 0.5).to(half)
    wide, tokens = (2 * torch.randn(64, 128)).to(bfloat16), torch.randn(4, 24, 512).to(bfloat16)
    images, channels = torch.randn(16, 16, 4, 4).to(bfloat16), torch.rand(16)
    rows, weight, bias = torch.randn(300, 200).to(bfloat16), torch.rand(512).to(bfloat16), torch.rand(512).to(bfloat16)
    means, variances = torch.zeros(16), torch.ones(16)
    with record(Path(sys.argv[1]), level="L1", task="statistics"):
        for values in (x, small):
            for function in (torch.exp, torch.tanh, torch.sigmoid, F.silu, torch.sin, torch.cos, F.gelu):
                function(values)
        for function in (torch.rsqrt, torch.log, torch.log2):
            function(positive)
        torch.pow(positive, 2.5)
        F.gelu(x, approximate="tanh")
        F.gelu(wide)
        F.gelu(wide, approximate="tanh")
        F.layer_norm(tokens, (512,), weight, bias)
        F.batch_norm(images, means, variances, channels, channels, True)
        torch.var(rows, -1)
        torch.std(rows, -1)


if __name__ == "__main__":
    main()
