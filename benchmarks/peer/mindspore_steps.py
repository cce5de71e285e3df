"""Time plain and recorded training steps of a GPT-like network of MindSpore on the CPU.

Runs in the peer's environment. ``--tool`` names the package whose ``PrecisionDebugger`` records: ``msprobe.mindspore``
or ``msprobe_hooks.extensions.mindspore``. Prints the CPU seconds of each step, all threads included: some before
anything is installed, then by turns those that are not recorded and those that are, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import Tensor, mint, nn, ops

LAYERS, HIDDEN, HEADS, SEQUENCE, BATCH, VOCABULARY = 4, 128, 4, 64, 2, 256


class Block(nn.Cell):
    """One transformer layer."""

    def __init__(self):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm((HIDDEN,)), nn.LayerNorm((HIDDEN,))
        self.qkv, self.out = nn.Dense(HIDDEN, 3 * HIDDEN), nn.Dense(HIDDEN, HIDDEN)
        self.up, self.down = nn.Dense(HIDDEN, 4 * HIDDEN), nn.Dense(4 * HIDDEN, HIDDEN)

    def construct(self, x):
        """Map hidden states (batch, sequence, hidden) to hidden states."""
        batch, length, _ = x.shape
        q, k, v = (
            part.reshape((batch, length, HEADS, -1)).swapaxes(1, 2)
            for part in ops.split(self.qkv(self.norm_1(x)), HIDDEN, axis=2)
        )
        scores = ops.matmul(q, k.swapaxes(2, 3)) / (HIDDEN // HEADS) ** 0.5
        mixed = ops.matmul(ops.softmax(scores, -1), v).swapaxes(1, 2).reshape((batch, length, HIDDEN))
        x = x + self.out(mixed)
        return x + self.down(ops.gelu(self.up(self.norm_2(x))))


class Gpt(nn.Cell):
    """Embeddings, layers, head."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(SEQUENCE, HIDDEN)
        self.blocks = nn.CellList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm((HIDDEN,)), nn.Dense(HIDDEN, VOCABULARY)

    def construct(self, ids):
        """Map token ids (batch, sequence) to scores."""
        x = self.words(ids) + self.places(ops.arange(SEQUENCE))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tool", required=True)
    parser.add_argument("--level", default="L1")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()

    ms.set_context(mode=ms.PYNATIVE_MODE)
    # The peer's statistics rest on a kernel that a CPU has not. The same sum of squares stands in, for it alone.
    if options.tool.startswith("msprobe."):
        mint.norm = lambda x, *_, **__: mint.sqrt(mint.sum(mint.square(x)))
    # The debugger comes before what it is to see is bound.
    debugger_of = importlib.import_module(options.tool).PrecisionDebugger
    ms.set_seed(0)
    network = Gpt().set_train()
    tokens = Tensor(np.random.default_rng(0).integers(0, VOCABULARY, (BATCH, SEQUENCE)), ms.int32)

    def loss(ids):
        return ops.cross_entropy(network(ids)[:, :-1].reshape((-1, VOCABULARY)), ids[:, 1:].reshape((-1,)))

    differentiate = ms.value_and_grad(loss, None, network.trainable_params())

    def step() -> None:
        value, _ = differentiate(tokens)
        value.asnumpy()

    step()
    plain = [_timed(step) for _ in range(max(3, options.steps // 3))]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        chosen = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
        top = {"task": "statistics", "dump_path": f"{folder}/dump", "rank": [], "step": [], "level": options.level}
        path.write_text(json.dumps({**top, "statistics": chosen}))
        path.chmod(0o640)
        debugger = debugger_of(config_path=str(path))

        def recorded() -> None:
            debugger.start(network)
            step()
            debugger.stop()
            debugger.step()

        # The first one installs what records.
        recorded()
        turns = [(_timed(step), _timed(recorded)) for _ in range(options.steps)]
        stopped, seconds = (list(column) for column in zip(*turns, strict=True))
    print("seconds", json.dumps({"plain": plain, "stopped": stopped, "recorded": seconds}))


def _timed(step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


if __name__ == "__main__":
    main()
