"""What recording costs: time per recorded small call, and a training step against a plain one.

    python benchmarks/recording.py [--threads 1] [--repeat 5] [--models GPT2 ...] [--kinds "L1 md5" ...]

Two models in plain torch, 4 layers, hidden 256, 4 heads, sequence 128, batch 2, vocabulary 512: GPT-2-like, forward and
backward, and Llama-like with an AdamW that is fused, goes through lists of parameters, or from parameter to parameter,
which is a recorder's worst case. Ratios are of CPU time of this process, the least over repetitions that alternate
plain and recorded steps, and of that of the training's own thread; what ``step()`` writes at their end is not in them.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import quote
from recording_vs_peer import WANTED
from torch import nn

from msprobe_hooks import record
from msprobe_hooks.extensions.overflow.recorder import OverflowSummary
from msprobe_hooks.record import open_session
from msprobe_hooks.recording.config import settings
from msprobe_hooks.torch.statistics import measure

HIDDEN, HEADS, LAYERS, SEQUENCE, BATCH, VOCABULARY = 256, 4, 4, 128, 2, 512


class Block(nn.Module):
    """One transformer layer with eager attention and the tanh form of GELU."""

    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(HIDDEN)
        self.c_attn = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.c_proj = nn.Linear(HIDDEN, HIDDEN)
        self.ln_2 = nn.LayerNorm(HIDDEN)
        self.c_fc = nn.Linear(HIDDEN, 4 * HIDDEN)
        self.mlp_proj = nn.Linear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        """Map hidden states (batch, sequence, hidden) to hidden states."""
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(HIDDEN, 2)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(HIDDEN / HEADS)
        mask = torch.tril(torch.ones(length, length, dtype=torch.bool))
        weights = F.softmax(torch.where(mask, scores, torch.finfo(scores.dtype).min), dim=-1)
        x = x + self.c_proj(torch.matmul(weights, v).transpose(1, 2).reshape(batch, length, HIDDEN))
        h = self.c_fc(self.ln_2(x))
        h = 0.5 * h * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (h + 0.044715 * torch.pow(h, 3.0))))
        return x + self.mlp_proj(h)


class GPT2(nn.Module):
    """Embeddings, layers, tied head."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, HIDDEN)
        self.wpe = nn.Embedding(SEQUENCE, HIDDEN)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(HIDDEN)

    def forward(self, ids):
        """Map token ids (batch, sequence) to logits."""
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)


class RMSNorm(nn.Module):
    """The normalisation of Llama, in its own arithmetic."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        """Scale hidden states by their root mean square."""
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x, cos, sin):
    """Turn queries or keys by their positions."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class LlamaBlock(nn.Module):
    """One layer: rotary attention, gated feed-forward."""

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = RMSNorm(), RMSNorm()
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(HIDDEN, 3 * HIDDEN, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * HIDDEN, HIDDEN, bias=False)

    def forward(self, x, cos, sin):
        """Map hidden states (batch, sequence, hidden) to hidden states."""
        batch, length, _ = x.shape
        h = self.ln_1(x)
        q, k, v = (one(h).view(batch, length, HEADS, -1).transpose(1, 2) for one in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        x = x + self.o(attended.transpose(1, 2).reshape(batch, length, HIDDEN))
        h = self.ln_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    """Embeddings, layers, head."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, HIDDEN)
        self.h = nn.ModuleList(LlamaBlock() for _ in range(LAYERS))
        self.ln_f = RMSNorm()
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids):
        """Map token ids (batch, sequence) to logits."""
        width = HIDDEN // HEADS
        angles = torch.outer(torch.arange(ids.shape[1]), 1e4 ** -(torch.arange(0, width, 2) / width)).repeat(1, 2)
        x, cos, sin = self.wte(ids), angles.cos(), angles.sin()
        for block in self.h:
            x = block(x, cos, sin)
        return self.head(self.ln_f(x))


def make_step(family=GPT2, **of_optimizer):
    """Return a model and a function that trains it one step, with an AdamW where it is given which one."""
    torch.manual_seed(0)
    model = family()
    optimizer = torch.optim.AdamW(model.parameters(), **of_optimizer) if of_optimizer else None
    ids = torch.randint(0, VOCABULARY, (BATCH, SEQUENCE))

    def step():
        model.zero_grad()
        logits = model(ids)[:, :-1].reshape(-1, VOCABULARY)
        F.cross_entropy(logits, ids[:, 1:].reshape(-1)).backward()
        if optimizer is not None:
            optimizer.step()

    return model, step


MODELS = {
    "GPT2": (GPT2, {}),
    "Llama, AdamW": (Llama, {"foreach": False}),
    "Llama, AdamW foreach": (Llama, {"foreach": True}),
    "Llama, AdamW fused": (Llama, {"fused": True}),
}
KINDS = {
    "L1 statistics": {"level": "L1"},
    "L0 statistics": {"level": "L0"},
    "mix statistics": {"level": "mix"},
    "L1 md5": {"level": "L1", "summary_mode": "md5"},
    "L1 overflow_check": {"level": "L1", "task": "overflow_check"},
    "L1 tensor": {"level": "L1", "task": "tensor"},
    "L1 tensor, containers": {"level": "L1", "task": "tensor", "tensor_files": "safetensors"},
    "L1 tensor, compressed": {"level": "L1", "task": "tensor", "tensor_files": "safetensors", "compression": "zstd"},
}


def cpu_seconds(run):
    """Return the CPU seconds that a function takes: of all threads, and of this one."""
    process, thread = time.process_time(), time.thread_time()
    run()
    return time.process_time() - process, time.thread_time() - thread


def step_costs(folder: Path, repeat: int, made, **options):
    """Return the least CPU seconds (of all threads, of this one) of steps, and the records of each recorded one.

    The steps are plain ones, recorded ones, and those with a session that is stopped.
    """
    model, step = made
    step()
    session = open_session(settings(folder, **options), model, "pytorch")
    plain, recorded = [], []

    def one_recorded():
        session.start()
        step()
        session.stop()

    one_recorded()
    session.step()
    for _ in range(repeat):
        plain.append(cpu_seconds(step))
        recorded.append(cpu_seconds(one_recorded))
        session.step()
        session.stop()
    stopped = [cpu_seconds(step) for _ in range(repeat)]
    summary = session.close()
    records = summary.looked_at if isinstance(summary, OverflowSummary) else summary.records
    return *(tuple(map(min, zip(*runs, strict=True))) for runs in (plain, recorded, stopped)), records // (repeat + 1)


def small_call(folder: Path, count: int = 5000):
    """Return microseconds per ``torch.add`` of two 8x8 tensors: plain, recorded, and with a session that is stopped."""
    x, y = torch.randn(8, 8), torch.randn(8, 8)

    def run(number=count):
        for _ in range(number):
            torch.add(x, y)

    run()
    plain, _ = cpu_seconds(run)
    with record(folder) as session:
        run(1000)
        recorded, _ = cpu_seconds(run)
        session.stop()
        stopped, _ = cpu_seconds(run)
    return tuple(seconds / count * 1e6 for seconds in (plain, recorded, stopped))


def large_tensor(elements: int = 1 << 24, repeat: int = 5):
    """Return (least CPU ms, relative error of the norm) of a float32 tensor's statistics, and of torch's reductions."""
    x = torch.randn(elements)
    exact = torch.linalg.vector_norm(x, dtype=torch.float64).item()

    def whole():
        return torch.amax(x).item(), torch.amin(x).item(), torch.sum(x).item(), torch.linalg.vector_norm(x).item()

    found, of_torch = measure(x).norm, whole()[3]
    costs = [(cpu_seconds(lambda: measure(x))[0], cpu_seconds(whole)[0]) for _ in range(repeat)]
    ours, theirs = (least * 1e3 for least in map(min, zip(*costs, strict=True)))
    return (ours, found / exact - 1), (theirs, of_torch / exact - 1)


def small_training(folder: Path, count: int = 2000):
    """Return microseconds per record of a chain of small calls, forward and backward records counted."""

    def run():
        y = torch.ones(8, 8, requires_grad=True)
        for _ in range(count):
            y = y * 0.5
        y.sum().backward()

    run()
    plain, _ = cpu_seconds(run)
    with record(folder) as session:
        run()
        recorded, _ = cpu_seconds(run)
    return (recorded - plain) / (session.summary.records / 2) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--models", nargs="*", choices=MODELS, default=list(MODELS))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain, recorded, stopped = small_call(folder / "call")
        print(f"small call, us: plain {plain:.2f}, recorded {recorded:.1f}, loaded but stopped {stopped:.2f}")
        quote("a recorded small call", recorded, unit="CPU us", wanted="at most 60")
        quote(
            "a small call while not recording, beyond a plain one", stopped - plain, unit="CPU us", wanted="at most 1"
        )
        print(f"small call with gradient, us per record: {small_training(folder / 'chain'):.1f}")
        (ours, off), (whole, whole_off) = large_tensor()
        print(
            f"16 M elements of float32: {ours:.1f} CPU ms, norm off by {off:.1e}; "
            f"by four reductions of torch {whole:.1f}, {whole_off:.1e}"
        )
        for model in arguments.models:
            family, of_optimizer = MODELS[model]
            for kind in arguments.kinds:
                plain, recorded, stopped, records = step_costs(
                    folder / f"{model}-{kind}", arguments.repeat, make_step(family, **of_optimizer), **KINDS[kind]
                )
                ratio = recorded[0] / plain[0]
                quote(f"{model}, {kind}: recorded step / plain step", ratio, wanted=WANTED.get(kind, ""))
                print(
                    f"{model}, {kind}: plain {plain[0] * 1e3:.1f} ms, recorded {recorded[0] * 1e3:.1f} ms, "
                    f"ratio {ratio:.2f}, of its own thread {recorded[1] / plain[1]:.2f}, "
                    f"stopped {stopped[0] / plain[0]:.2f}, {records} records",
                    flush=True,
                )


if __name__ == "__main__":
    main()
