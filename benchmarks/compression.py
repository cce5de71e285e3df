"""What compression makes of the tensors of a recorded step: their size, and CPU time for each MiB.

    python benchmarks/compression.py [--models GPT2 ...] [--dtypes float32 ...]

The models of `recording`, third step, level L1, every tensor once. ``stored`` is what containers hold; beside it are
level 1 of zlib and of Zstandard, of the elements as they lie and of their bytes by significance. A tensor that becomes
no smaller counts as it is.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import zlib
from functools import partial
from pathlib import Path

import numpy as np
import torch
import zstandard
from measure import quote
from recording import MODELS, make_step
from safetensors.torch import load_file

from msprobe_hooks import record
from msprobe_hooks.dump.tensor_files.compression import compressed, decompressed


def recorded(model, dtype, folder: Path):
    """Return the tensors of a step, each as the bytes of one element and its elements as bytes."""
    torch.set_default_dtype(dtype)
    family, of_optimizer = MODELS[model]
    _, step = make_step(family, **of_optimizer)
    for _ in range(2):
        step()
    with record(folder, task="tensor", tensor_files="safetensors"):
        step()
    torch.set_default_dtype(torch.float32)
    tensors = [tensor for file in sorted(folder.rglob("*.safetensors")) for tensor in load_file(file).values()]
    return [(each.itemsize, each.reshape(-1).view(torch.uint8).numpy()) for each in tensors if each.numel()]


def by_significance(elements, item_size):
    return np.ascontiguousarray(elements.reshape(-1, item_size).T).reshape(-1)


def in_order(sorted_bytes, item_size):
    return np.ascontiguousarray(sorted_bytes.reshape(item_size, -1).T).reshape(-1)


def plain(compress, decompress):
    """Return how a library compresses elements, and gets them back."""
    return (
        lambda elements, item_size: compress(elements.data),
        lambda frame, item_size, size: np.frombuffer(decompress(frame), np.uint8),
    )


def shuffled(compress, decompress):
    """Return the same for bytes by significance."""
    return (
        lambda elements, item_size: compress(by_significance(elements, item_size).data),
        lambda frame, item_size, size: in_order(np.frombuffer(decompress(frame), np.uint8), item_size),
    )


ZLIB = (partial(zlib.compress, level=1), zlib.decompress)
ZSTD = (zstandard.ZstdCompressor(level=1).compress, zstandard.ZstdDecompressor().decompress)
CODECS = {
    "stored": (
        lambda elements, item_size: compressed(elements.data, item_size),
        lambda frame, item_size, size: decompressed(np.frombuffer(frame, np.uint8), item_size, size),
    ),
    "zstd": plain(*ZSTD),
    "zstd, shuffled": shuffled(*ZSTD),
    "zlib": plain(*ZLIB),
    "zlib, shuffled": shuffled(*ZLIB),
}


def measured(codec, tensors):
    """Return the share of the bytes that are left, and CPU seconds to compress and to get them back."""
    compress, decompress = codec
    start = time.process_time()
    frames = [compress(elements, item_size) for item_size, elements in tensors]
    middle = time.process_time()
    left = 0
    for (item_size, elements), frame in zip(tensors, frames, strict=True):
        is_smaller = frame is not None and len(frame) < elements.size
        left += len(frame) if is_smaller else elements.size
        if is_smaller:
            decompress(frame, item_size, elements.size)
    return left / sum(elements.size for _, elements in tensors), middle - start, time.process_time() - middle


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", nargs="*", choices=MODELS, default=["GPT2", "Llama, AdamW"])
    parser.add_argument("--dtypes", nargs="*", default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for model in arguments.models:
        for dtype in arguments.dtypes:
            with tempfile.TemporaryDirectory() as name:
                tensors = recorded(model, getattr(torch, dtype), Path(name))
            mib = sum(elements.size for _, elements in tensors) / 2**20
            print(f"{model}, {dtype}: {len(tensors)} tensors, {mib:.0f} MiB")
            for title, codec in CODECS.items():
                left, there, back = measured(codec, tensors)
                print(f"  {title:15} {left:.3f}, {there / mib * 1e3:5.2f} ms/MiB, back {back / mib * 1e3:5.2f} ms/MiB")
                if title == "stored":
                    quote(f"{model}, {dtype}: compressed tensors / tensors", left)
                    quote(f"{model}, {dtype}: compressing", there / mib * 1e3, unit="CPU ms/MiB")


if __name__ == "__main__":
    main()
