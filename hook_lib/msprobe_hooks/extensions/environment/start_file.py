"""File of a training's start: one per rank, ``rank<n>.json``, with the digests in it."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec

from msprobe_hooks.errors import StartError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.recording.tensor_entry import Number, Statistics
from msprobe_hooks.regular_files import read_regular

_FILE = re.compile(r"rank([0-9]+)\.json")
_FORMAT = "msprobe-environment"
_VERSION = 1


class TensorFact(msgspec.Struct, frozen=True, omit_defaults=True):
    """Digest and statistics of a tensor; ``digest``, dtype and shape are empty where only statistics are known."""

    max: float | None = None
    min: float | None = None
    mean: float | None = None
    norm: float | None = None
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    digest: str = ""


class RandomCalls(msgspec.Struct):
    """Number of calls of a random function on a stack, whose frames are in words, from the outermost in."""

    stack: list[str]
    count: int = 1


class Started(msgspec.Struct, omit_defaults=True):
    """The environment of one rank; a section is None where it was not collected.

    ``texts`` are launch scripts and YAML files by name, ``arguments`` the command line or what the script gave.
    ``batches`` holds by step, and by place in the call, what the model was given; ``weights`` and ``buffers`` hold by
    step and name what it consisted of. ``random`` holds the calls of random functions before the first forward pass,
    of those in ``watched``. ``world`` is the number of ranks; ``problems`` says what could not be looked at.
    """

    format: str = ""
    version: int = 0
    rank: int = 0
    world: int | None = None
    variables: dict[str, str] | None = None
    packages: dict[str, str] | None = None
    switches: dict[str, str] | None = None
    texts: dict[str, str] | None = None
    arguments: dict[str, Any] | None = None
    seeds: dict[str, str] | None = None
    batches: dict[int, dict[str, TensorFact | str]] | None = None
    weights: dict[int, dict[str, TensorFact]] | None = None
    buffers: dict[int, dict[str, TensorFact]] | None = None
    random: dict[str, list[RandomCalls]] | None = None
    watched: list[str] = []
    problems: list[str] = []


def rank_file(folder: Path, rank: int) -> Path:
    """Return the file of a rank."""
    return folder / f"rank{rank}.json"


def rank_files(folder: Path) -> list[Path]:
    """Return the files of a folder, by rank."""
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def write_started(path: Path, started: Started) -> None:
    """Write the file of a rank, whole or not at all. Raises StartError."""
    plain = msgspec.to_builtins(started, str_keys=True) | {"format": _FORMAT, "version": _VERSION}
    part = path.with_name(f".{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Python's writer has words for NaN and infinity.
        part.write_text(json.dumps(plain, indent=1, default=str), encoding="utf-8", errors="backslashreplace")
        part.replace(path)
    except OSError as error:
        raise StartError(f"{path}: cannot be written: {error.strerror or error}") from None


def read_started(path: Path) -> Started:
    """Read the file of a rank. Raises StartError for anything else."""
    remedy = "pass a file that msprobe_hooks.write_environment wrote"
    try:
        started = decode_json(read_regular(path), Started, strict=False)
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {error.strerror or error}; {remedy}") from None
    except JsonError as error:
        raise StartError(f"{path}: {error}; {remedy}") from None
    if started.format != _FORMAT:
        raise StartError(f"{path}: not the file of a training environment; {remedy}")
    if started.version != _VERSION:
        raise StartError(f"{path}: has format {started.version}, but this version reads format {_VERSION}")
    return started


def fact(known: Statistics, dtype: str, shape: tuple[int, ...], content: bytes | memoryview) -> TensorFact:
    """Return what is written about a tensor whose contiguous bytes are ``content``."""
    maximum, minimum, mean, norm = map(_float, (known.max, known.min, known.mean, known.norm))
    return TensorFact(maximum, minimum, mean, norm, dtype, shape, digest(content))


def digest(content: bytes | memoryview) -> str:
    """Return the BLAKE2b digest of bytes, 128 bits as hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _float(value: Number | None) -> float | None:
    return None if value is None else float(value)
