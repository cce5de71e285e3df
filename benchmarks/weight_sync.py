"""What writing the weights of a model of Llama-7B's shapes costs, and comparing them with those of two ranks.

Parameters in bfloat16 are views of one random buffer, so memory is what `write_weights` takes and a buffer of 0.3 GiB.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import quote, run, scratch, table

HIDDEN, INNER, VOCABULARY = 4096, 11008, 32000
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (HIDDEN, HIDDEN),
    "self_attn.v_proj": (HIDDEN, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
    "input_layernorm": (HIDDEN,),
    "post_attention_layernorm": (HIDDEN,),
}
BY_COLUMNS = ("o_proj", "down_proj")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32, help="default: %(default)s")
    parser.add_argument("--write", type=Path, help="write the weights of one rank here, and measure nothing")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--ranks", type=int, default=1)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options.layers, options.rank, options.ranks)
        return

    rows = []
    with TemporaryDirectory(dir=scratch()) as folder:
        words = [sys.executable, __file__, "--layers", str(options.layers), "--write"]
        trainer = run([*words, Path(folder, "trainer")])
        for rank in range(2):
            run([*words, Path(folder, "engine"), "--rank", str(rank), "--ranks", "2"])
        start = run([sys.executable, __file__, "--layers", "0", "--write", Path(folder, "nothing")])
        size = sum(path.stat().st_size for path in Path(folder, "trainer").rglob("*.*"))
        compare = ["-m", "pytest", "-p", "pytest_msprobe.plugin"]
        sides = [f"--msprobe-checkpoint={folder}/engine", f"--msprobe-golden={folder}/trainer"]
        compared = run([sys.executable, *compare, "-q", "--tb=no", *sides])
    count = options.layers * sum(map(elements, SHAPES.values())) + HIDDEN + 2 * VOCABULARY * HIDDEN
    rows.append(["write", f"{trainer.cpu - start.cpu:.1f}", f"{trainer.wall - start.wall:.1f}", f"{trainer.peak:.0f}"])
    rows.append(
        ["a process that writes the vocabulary alone", f"{start.cpu:.1f}", f"{start.wall:.1f}", f"{start.peak:.0f}"]
    )
    rows.append(["compare with two ranks", f"{compared.cpu:.1f}", f"{compared.wall:.1f}", f"{compared.peak:.0f}"])
    print(
        f"{count / 1e9:.2f} billion parameters, digests of {size / 2**20:.0f} MiB: {compared.output.splitlines()[-1]}\n"
    )
    print(table(["", "CPU s", "wall s", "peak MiB"], rows))
    quote("write_weights of Llama-7B's shapes in bfloat16", trainer.cpu - start.cpu, unit="CPU s")
    quote("write_weights of Llama-7B's shapes in bfloat16", trainer.peak, unit="MiB")


def elements(shape: tuple[int, ...]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def write(folder: Path, layers: int, rank: int, ranks: int) -> None:
    import torch

    from msprobe_hooks import write_weights

    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    step = 4099
    # randn has no bfloat16 of its own on every version; random bits would hold NaN.
    buffer = torch.empty(VOCABULARY * HIDDEN + step * (len(SHAPES) * layers + 3), dtype=torch.bfloat16)
    for part in buffer.split(1 << 24):
        part.copy_(torch.randn(len(part), generator=generator))

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        shapes = {"embed_tokens": (VOCABULARY, HIDDEN), "norm": (HIDDEN,), "lm_head": (VOCABULARY, HIDDEN)}
        for layer in range(layers):
            shapes |= {f"layers.{layer}.{name}": shape for name, shape in SHAPES.items()}
        for place, (name, shape) in enumerate(shapes.items()):
            weight = buffer[place * step : place * step + elements(shape)].view(shape)
            is_whole = len(shape) == 1 or ranks == 1
            axis = 1 if name.endswith(BY_COLUMNS) else 0
            yield f"model.{name}.weight", weight if is_whole else weight.chunk(ranks, axis)[rank]

    write_weights(weights(), folder, rank=rank, layout={"tp": (rank, ranks)})


if __name__ == "__main__":
    main()
