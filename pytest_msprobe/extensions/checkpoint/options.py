"""Options of ``--msprobe-checkpoint``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.run import option_fields
from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.option_fields import existing, existing_file, number, output_file, setting, shared
from pytest_msprobe.run.shared_options import GOLDEN, HTML, JSON, MAPPING, MODEL_CONFIG, golden_path

if TYPE_CHECKING:
    from pytest_msprobe.yaml_with_lines import Section


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The checkpoint to compare with, the share of a norm that may differ, and msprobe's report or None.

    ``earlier`` are golden checkpoints of earlier steps, ``names`` the names in mapping files, ``config`` the model's
    configuration.
    """

    golden: Path = shared(GOLDEN, read=existing)
    limit: float = setting(
        "msprobe_checkpoint_limit",
        "maximum distance of a parameter from the golden one, as a share of the golden norm, such as 1e-6 (default: "
        "0, equal values)",
        kind="float",
        read=number(float, "a number of at least 0", lambda limit: 0 <= limit < math.inf),
        default=0.0,
    )
    json: Path | None = shared(JSON, read=output_file, rerun=False)
    earlier: tuple[Path, ...] = setting(
        "msprobe_checkpoint_earlier",
        "golden checkpoints of earlier steps: a parameter that is still equal to one is named",
        kind="args",
        read=existing,
    )
    mappings: tuple[Path, ...] = shared(MAPPING, read=existing_file, repeat=True)
    config: Path | None = shared(MODEL_CONFIG, read=existing_file)
    names: tuple[Section, ...] = ()


checkpoint_key = pytest.StashKey[CheckpointOptions]()


def read_options(config: pytest.Config) -> CheckpointOptions:
    """Read and check the options. Raises OptionError that says what is allowed."""
    golden_path(config, "--msprobe-checkpoint", "checkpoint")
    from pytest_msprobe.run.mapping_files import model_names_in

    return option_fields.read_fields(config, CheckpointOptions, names=model_names_in(config))


CHECKPOINT = DeclaredMode(
    name="checkpoint",
    flag="--msprobe-checkpoint",
    flag_help=(
        "compare this checkpoint with --msprobe-golden: a torch or safetensors file, or a folder of "
        "torch.distributed.checkpoint, Megatron or write_weights"
    ),
    home="pytest_msprobe.extensions.checkpoint.mode:CheckpointMode",
    shared_options=(GOLDEN, HTML, JSON, MAPPING, MODEL_CONFIG),
    options=(CheckpointOptions,),
)
