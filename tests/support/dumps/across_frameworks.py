"""Small runs of two frameworks that a test writes, and which of their calls are partners."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msprobe_hooks.dump.reader import Dump, read_dump
from pytest_msprobe.extensions.across_frameworks.options import AcrossOptions
from pytest_msprobe.extensions.across_frameworks.translation import (
    FrameworkTranslation,
    Mappings,
    composed_runs,
    read_mappings,
    translation,
)
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy
from pytest_msprobe.yaml_with_lines import Section
from tests.support.dumps.dump_files import Json, forward, tensor_around, write_dump


def tensor(*shape: int, dtype: str = "Float32", at: float = 1.0, **fields: Any) -> Json:
    """Return the element of a tensor of MindSpore with statistics around ``at``."""
    return tensor_around(*shape, dtype=dtype, at=at, **fields)


def torch_tensor(*shape: int, at: float = 1.0) -> Json:
    """Return the same of PyTorch."""
    return tensor(*shape, dtype="torch.float32", at=at)


def call(*args: Any, out: Any = None, **kwargs: Any) -> Json:
    """Return a forward record; the output defaults to what the first argument is."""
    return forward(*args, output=[out or args[0]], **kwargs)


def write(folder: Path, framework: str, records: Json, parents: Json | None = None) -> Path:
    """Write a run and return the path of its ``dump.json``."""
    level = "mix" if parents else "L1"
    return write_dump(folder, records, level=level, framework=framework, parents=parents or {})


def pair_of(tmp_path: Path, ours: Json, theirs: Json, frameworks: str = "mindspore pytorch", **files: str) -> DumpPair:
    """Return two runs as they are compared; ``files`` are mapping files, by what they map."""
    first, second = frameworks.split()
    target = read_dump(write(tmp_path / "target", first, ours))
    golden = read_dump(write(tmp_path / "golden", second, theirs))
    sections = {}
    for name, text in files.items():
        sections[name] = Section(tmp_path / f"{name}.yaml")
        sections[name].path.write_text(text)
    options = AcrossOptions(**sections, wants_apis="apis" in sections)  # type: ignore[arg-type]
    names: FrameworkTranslation = translation(target, golden, read_mappings(options), options)
    return DumpPair(0, target, golden, policy=load_policy("default"), translation=names)


def partners(pair: DumpPair) -> dict[str | None, str | None]:
    """Return which call of the golden run is compared with which of the target."""
    return {match.target: match.golden for match in pair.matching.matches}


def composed_pair(target: Dump, golden: Dump) -> DumpPair:
    """Return two runs as they are compared where several calls of one are one call of the other."""
    one, other, names = composed_runs(target, golden, Mappings())
    meeting = translation(one, other, Mappings(), AcrossOptions(), names)
    return DumpPair(0, one, other, policy=load_policy("default"), translation=meeting)
