"""The options of a comparison with an engine, and when a comparison is one."""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from msprobe_hooks.dump.paths.recording import find_dumps
from msprobe_hooks.errors import DumpError
from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.shared_options import MODEL_CONFIG, MODEL_NAMES, model_config, model_name_files
from pytest_msprobe.storage.naming import fingerprint

Match = Literal["calls", "inference"]

MATCH, CLIP, JSON = "--msprobe-match", "--msprobe-clip", "--msprobe-inference-json"
_CLIP = 0.2
# What vLLM, SGLang and their kin call modules that trainers do not fuse.
_ENGINE = re.compile(
    rb'"Module\.[^" ]*(\.(qkv_proj|gate_up_proj)\.\w+|QKVParallelLinear|MergedColumnParallelLinear)\.forward\.'
)
_TENSORS = re.compile(rb'"task": ?"tensor"')


@dataclass(frozen=True, slots=True)
class InferenceOptions:
    """How a training is compared with an engine; ``match`` is None where the runs decide whether it is."""

    match: Match | None = None
    clip: float = _CLIP
    json: Path | None = None
    names: tuple[Path, ...] = ()
    config: Path | None = None

    @property
    def of_calls(self) -> str:
        """Empty: none of the options says how calls are matched."""
        return ""

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""
        words = [MATCH, self.match] if self.match else []
        words += [CLIP, f"{self.clip:g}"] if self.clip != _CLIP else []
        words += [word for path in self.names for word in (MODEL_NAMES, str(path))]
        return words + ([MODEL_CONFIG, str(self.config)] if self.config else [])

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        files = [*self.names, *([self.config] if self.config else [])]
        return {"match": str(self.match), "clip": f"{self.clip:g}", "names": " ".join(map(fingerprint, files))}


def add_options(group: Any) -> None:
    """Add the options."""
    group.addoption(
        MATCH,
        choices=("calls", "inference"),
        help="compare call by call, or a training with an inference engine token by token (default: inference where "
        "one of the runs has modules that engines fuse)",
    )
    group.addoption(
        CLIP,
        metavar="SHARE",
        type=float,
        help=f"count tokens whose ratio of probabilities is further from 1 than this (default: {_CLIP})",
    )
    group.addoption(JSON, metavar="FILE", help="write what a comparison with an inference engine found to this file")


def read_options(config: pytest.Config) -> InferenceOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    clip = config.getoption("msprobe_clip")
    if clip is not None and not 0 < clip < 1:
        raise OptionError(f"{CLIP} {clip:g}: not between 0 and 1", remedy=f"pass a share such as {_CLIP}")
    text = config.getoption("msprobe_inference_json")
    path = Path(config.invocation_params.dir / text) if text else None
    if path is not None and path.is_dir():
        raise OptionError(f"{JSON} {text!r}: a directory", remedy="pass the name of a file")
    return InferenceOptions(
        config.getoption("msprobe_match"),
        _CLIP if clip is None else clip,
        path,
        model_name_files(config),
        model_config(config),
    )


def passed(config: pytest.Config) -> list[str]:
    """Return the names of the options that were passed."""
    return [name for name in ("match", "clip", "inference_json") if config.getoption(f"msprobe_{name}") is not None]


def is_engine(path: Path) -> bool:
    """Return whether the first dump of a file or folder has modules that engines fuse; an unusable one has none."""
    return _has(path, _ENGINE)


def has_tensors(path: Path) -> bool:
    """Return whether the first dump of a file or folder was recorded with tensors, not with statistics alone."""
    return _has(path, _TENSORS)


def _has(path: Path, pattern: re.Pattern[bytes]) -> bool:
    try:
        first = path if path.is_file() else find_dumps(path)[0]
        with first.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return pattern.search(text) is not None
    except (DumpError, OSError, ValueError):
        return False
