"""Dumps written on the spot: elements and records as msprobe writes them, and the folder that holds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Json = dict[str, Any]


def tensor(*shape: int, dtype: str = "float32", low: Any = -1.0, high: Any = 1.0, **fields: Any) -> Json:
    """Return the element of a recorded tensor of PyTorch, with its extrema; ``fields`` add to the others or replace
    them, as ``Mean=0.5``."""
    statistics = {"Max": high, "Min": low, "Mean": None, "Norm": None, "requires_grad": False}
    return {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": list(shape)} | statistics | fields


def tensor_around(*shape: int, dtype: str = "torch.float32", at: float = 1.0, **fields: Any) -> Json:
    """Return the element of a tensor whose four statistics all grow with ``at``; the prefix of ``dtype`` says whose."""
    whose = "torch" if dtype.startswith("torch.") else "mindspore"
    statistics = {"Max": at, "Min": -at, "Mean": at / 4, "Norm": 2 * at}
    return {"type": f"{whose}.Tensor", "dtype": dtype, "shape": list(shape)} | statistics | fields


def value(plain: Any) -> Any:
    """Return the element of a plain value, those of a list for a list; what is no value of Python stays as it is."""
    if isinstance(plain, (list, tuple)):
        return [value(item) for item in plain]
    if isinstance(plain, dict) or plain is None:
        return plain
    return {"type": type(plain).__name__, "value": plain}


def forward(*args: Any, output: list[Any] | None = None, **kwargs: Any) -> Json:
    """Return the body of a forward record; the output defaults to one tensor like the first argument."""
    return {"input_args": list(args), "input_kwargs": kwargs, "output": [args[0]] if output is None else output}


def write_dump(
    folder: Path, records: Json, *, parents: Json | None = None, stacks: Json | None = None, **top: Any
) -> Path:
    """Write records as ``dump.json`` into a folder, which is made, and return the path.

    ``parents`` become its ``construct.json`` and ``stacks`` its ``stack.json``; ``top`` replaces what stands above the
    records, as ``framework="mindspore"``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "dump.json"
    envelope = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps(envelope | top | {"data": records}, indent=1))
    for name, content in (("construct.json", parents), ("stack.json", stacks)):
        if content is not None:
            (folder / name).write_text(json.dumps(content))
    return path


SOFTMAX = {
    "Functional.softmax.0.forward": forward(tensor(4, 8, requires_grad=True), dim=value(-1)),
    "Functional.softmax.0.backward": {"input": [tensor(4, 8)], "output": [tensor(4, 8)]},
}


def three_calls() -> Json:
    """Return three calls, two of them with a backward record, that every healthy device computes."""
    weight = tensor(8, 8, requires_grad=True)
    x = tensor(4, 8, requires_grad=True)
    half = tensor(4, 8, dtype="bfloat16", requires_grad=True)
    index = tensor(3, dtype="int64", low=0, high=3)
    return {
        "Functional.softmax.0.forward": forward(x, dim=value(-1)),
        "Functional.linear.0.forward": forward(half, tensor(8, 8, dtype="bfloat16", requires_grad=True)),
        "Torch.index_select.0.forward": forward(
            tensor(4, 8, dtype="int32", low=-9, high=9),
            value(0),
            index,
            output=[tensor(3, 8, dtype="int32", low=-9, high=9)],
        ),
        "Functional.linear.0.backward": {"input": [half], "output": [half, weight]},
        "Functional.softmax.0.backward": {"input": [x], "output": [x]},
    }
