"""The options of a comparison with an engine, and when a comparison is one."""

from __future__ import annotations

import mmap
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_msprobe.modes.compare.options import PartOptions
from pytest_msprobe.run.option_fields import (
    existing,
    existing_file,
    number,
    one_of,
    option,
    output_file,
    setting,
    shared,
)
from pytest_msprobe.run.shared_options import JSON, MODEL_CONFIG

if TYPE_CHECKING:
    from pytest_msprobe.yaml_with_lines import Section

Match = Literal["calls", "inference"]

MATCH, PROFILE = "--msprobe-match", "--msprobe-inference-profile"
_CLIP = 0.2  # epsilon of PPO (Schulman et al., 2017)
# What vLLM, SGLang and their kin call modules that trainers do not fuse.
_ENGINE = re.compile(
    rb'"Module\.[^" ]*(\.(qkv_proj|gate_up_proj)\.\w+|QKVParallelLinear|MergedColumnParallelLinear)\.forward\.'
)
_MODULE = re.compile(rb'"Module\.([^"]{1,400})\.forward\.\d+"\s*:\s*\{')
_TENSORS = re.compile(rb'"task": ?"tensor"')


@dataclass(frozen=True, slots=True)
class InferenceOptions(PartOptions):
    """Comparison of a training with an engine; ``match`` is None where the runs decide whether it is one."""

    match: Match | None = option(
        MATCH,
        "compare call by call (calls), or token by token (inference), as a training with an inference engine or one "
        "step in other micro-batches (default: inference where one of the runs has modules that engines fuse, or where "
        "shapes say that the runs cut one batch otherwise)",
        metavar="calls|inference",
        read=one_of("calls", "inference"),
    )
    clip: float = setting(
        "msprobe_clip",
        f"count tokens whose ratio of probabilities is further from 1 than this (default: {_CLIP})",
        kind="float",
        read=number(float, f"a share between 0 and 1, such as {_CLIP}", lambda share: 0 < share < 1),
        default=_CLIP,
    )
    profile: Path | None = option(
        PROFILE,
        "recording of the golden run's step in another precision, or the --msprobe-json FILE of its comparison with "
        "the golden run: what it differs by is explained by rounding (default: a limit by dtype, width and depth)",
        metavar="PATH",
        read=existing,
    )
    json: Path | None = shared(JSON, read=output_file, rerun=False)
    config: Path | None = shared(MODEL_CONFIG, read=existing_file)
    names: tuple[Section, ...] = ()

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""
        from pytest_msprobe.storage.files import fingerprint

        files = [*(section.path for section in self.names), *([self.config] if self.config else [])]
        return {
            "match": str(self.match),
            "clip": f"{self.clip:g}",
            "names": " ".join(map(fingerprint, files)),
            "profile": str(self.profile or ""),
        }

    def with_mappings(self, sections: Mapping[str, list[Section | None]]) -> InferenceOptions:
        """Return the options with the names of models in mapping files."""
        return replace(self, names=tuple(filter(None, sections.get("model_names", ()))))


def is_engine(path: Path) -> bool:
    """Return whether the first dump of a file or folder has modules that engines fuse; an unusable one has none."""
    return _has(path, _ENGINE)


def has_tensors(path: Path) -> bool:
    """Return whether the first dump of a file or folder was recorded with tensors, not with statistics alone."""
    return _has(path, _TENSORS)


def no_rows(task: str) -> str:
    """Return that a recording has no rows of tokens, and how to make one that has."""
    return (
        f"task {task} keeps no rows, so its tokens cannot be found in the other run; "
        "record both runs with task tensor at level L0 or mix"
    )


def are_called_alike(target: Sequence[Path], golden: Sequence[Path]) -> bool:
    """Return whether the dumps of two runs have equally many calls of most modules that both have; reads names alone.

    Raises OSError or ValueError where a file cannot be read.
    """
    ours, theirs = (Counter(_module_names(paths)) for paths in (target, golden))
    shared = ours.keys() & theirs.keys()
    return 2 * sum(ours[name] == theirs[name] for name in shared) >= len(shared)


def _module_names(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            yield from (match[1] for match in _MODULE.finditer(text))


def _has(path: Path, pattern: re.Pattern[bytes]) -> bool:
    from msprobe_hooks.dump.recording_paths import find_dumps
    from msprobe_hooks.errors import DumpError

    try:
        first = path if path.is_file() else find_dumps(path)[0]
        with first.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return pattern.search(text) is not None
    except (DumpError, OSError, ValueError):
        return False
