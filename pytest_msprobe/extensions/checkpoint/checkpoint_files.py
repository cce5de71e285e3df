"""Files of tensors: what torch saved, weights only, and safetensors."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from msprobe_hooks.escaping import numbered
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import counted
from msprobe_hooks.regular_files import read_regular
from msprobe_hooks.torch.torch_files import RefusedFileError, load_torch_file
from pytest_msprobe.errors import CheckpointError
from pytest_msprobe.extensions.checkpoint.parameters import Checkpoint, Parameter, parameter, tensors_in

_UNKNOWN = re.compile(r"(?i:unsupported (?:global|class))[^\n]*?\b([A-Za-z_]\w*(?:\.\w+)+)")
_DTYPES = {"F": "float", "BF": "bfloat", "I": "int", "U": "uint", "C": "complex"}
_NARROW = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}


def load_torch(path: Path, allowed: Sequence[Any] = ()) -> Any:
    """Load what torch saved, weights only, mapped where that is possible. Raises CheckpointError.

    Classes other than tensors and containers are those that are ``allowed``; any other is named and refused.
    """
    try:
        return load_torch_file(path, mapped=True, allowed=allowed)
    except RefusedFileError as error:
        raise CheckpointError(str(error), file=path) from None
    except Exception as error:
        # Bytes that are no checkpoint make torch's reader raise almost anything.
        unknown = _UNKNOWN.search(str(error))
        if unknown:
            raise CheckpointError(
                f"holds objects of class {unknown[1]}, whose code would run when they are read",
                file=path,
                remedy="save tensors, numbers and containers only",
            ) from None
        if "weights_only" in str(error):
            # torch's own text says how to run what the file holds.
            raise CheckpointError(
                "holds pickled objects, whose code would run when they are read",
                file=path,
                remedy="save tensors, numbers and containers only",
            ) from None
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"not a readable checkpoint of torch: {first}", file=path) from None


def read_torch(path: Path) -> Checkpoint:
    """Read all tensors of a file of torch, nested under dotted names. Raises CheckpointError."""
    found = list(tensors_in(load_torch(path, [argparse.Namespace]), path))
    # {"a": {"b": ...}} and {"a.b": ...} are called alike.
    names = numbered(name for name, _ in found)
    return Checkpoint("torch", {name: parameter(tensor) for name, (_, tensor) in zip(names, found, strict=True)})


def read_safetensors(path: Path) -> Checkpoint:
    """Read the names, shapes and dtypes of a safetensors file. Raises CheckpointError."""
    return Checkpoint("safetensors", _safetensors(path))


def read_sharded(index: Path) -> Checkpoint:
    """Read the shards that ``*.safetensors.index.json`` names. Raises CheckpointError, also where one is missing."""
    try:
        shards = decode_json(read_regular(index), dict[str, Any]).get("weight_map", {})
        names = sorted(set(map(str, shards.values())))
    except (OSError, JsonError, AttributeError) as error:
        raise CheckpointError(f"not an index of safetensors: {error}", file=index) from None
    found: dict[str, Parameter] = {}
    for name in names:
        if Path(name).name != name:
            raise CheckpointError(f"shard {name!r} leads out of the folder", file=index)
        found |= _safetensors(index.parent / name)
    missing = sorted(set(shards) - set(found))
    if missing:
        raise CheckpointError(f"{counted(len(missing), 'tensor')} in no shard, first {missing[0]}", file=index)
    return Checkpoint(f"safetensors of {counted(len(names), 'shard')}", found)


def _safetensors(path: Path) -> dict[str, Parameter]:
    if find_spec("safetensors") is None:
        raise CheckpointError("requires safetensors", file=path, remedy="pip install 'pytest-msprobe[cases]'")
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise CheckpointError("this shard is missing", file=path, remedy="copy it to this place")
    try:
        with safe_open(path, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            return {
                name: Parameter(tuple(each.get_shape()), _dtype(each.get_dtype()), partial(_load, path, name))
                for name, each in slices.items()
            }
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"not a readable safetensors file: {error}", file=path) from None


def _load(path: Path, name: str) -> torch.Tensor:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
            return tensor
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{name} cannot be read: {error}", file=path) from None


def _dtype(text: str) -> str:
    """Return what torch calls a dtype of safetensors."""
    kind, bits = re.fullmatch(r"([A-Z]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{_DTYPES[kind]}{bits}" if kind in _DTYPES and bits.isdecimal() else _NARROW.get(text, text.lower())
