"""Checkpoints: two of them, parameter by parameter, with their options."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.run import option_fields
from pytest_msprobe.run.mode import DeclaredMode, JournalFacts
from pytest_msprobe.run.option_fields import existing, existing_file, number, output_file, setting, shared, words
from pytest_msprobe.run.rerun_command import display_path
from pytest_msprobe.run.shared_options import GOLDEN, HTML, JSON, MAPPING, MODEL_CONFIG, golden_path, html_file

if TYPE_CHECKING:
    from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint
    from pytest_msprobe.reports.page_file import Results
    from pytest_msprobe.run.item import JudgedItem
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
    from pytest_msprobe.run.mapping_files import MODEL_NAMES, sections_in

    options = option_fields.read_fields(config, CheckpointOptions)
    names = sections_in(options.mappings).get(MODEL_NAMES, ())
    return replace(options, names=tuple(section for section in names if section is not None))


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

# What follows is loaded by runs that compare checkpoints, not by every start of pytest.
_golden_key: pytest.StashKey[tuple[Path, Checkpoint]] = pytest.StashKey()
_html_key: pytest.StashKey[Path | None] = pytest.StashKey()
_targets_key: pytest.StashKey[dict[Path, Checkpoint]] = pytest.StashKey()


class CheckpointMode:
    """``--msprobe-checkpoint PATH --msprobe-golden PATH``."""

    name = CHECKPOINT.name
    flag = CHECKPOINT.flag
    flag_help = CHECKPOINT.flag_help
    shared_options = CHECKPOINT.shared_options
    reads_torch_files = True

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read them."""
        config.stash[checkpoint_key] = read_options(config)
        config.stash[_html_key] = html_file(config)

    def find_files(self, folder: Path) -> list[Path]:
        """Return the file that represents a folder."""
        from pytest_msprobe.extensions.checkpoint.weights_folder import main_file

        return [main_file(folder)]

    def read_file(self, path: Path) -> Checkpoint:
        """Read what the file represents."""
        from pytest_msprobe.extensions.checkpoint.weights_folder import read_checkpoint

        return read_checkpoint(path)

    def label(self, path: Path) -> str:
        """Return the name of the file, of a folder's with the folder's."""
        from pytest_msprobe.extensions.checkpoint.weights_folder import INDEX

        return "/".join(path.parts[-4:-2] if path.name == INDEX else path.parts[-2:])

    def needs_device(self, config: pytest.Config) -> bool:
        """Return False: nothing is computed again."""
        return False

    def open(self, config: pytest.Config, dumps: Mapping[Path, Checkpoint]) -> None:
        """Read the golden checkpoint."""
        from pytest_msprobe.extensions.checkpoint.weights_folder import main_file, read_checkpoint, with_sizes
        from pytest_msprobe.extensions.model_names.model_names import model_names

        options = config.stash[checkpoint_key]
        golden = options.golden
        path = main_file(golden) if golden.is_dir() else golden
        # A wrong file of names ends the run before its first item.
        model_names(options.names)
        config.stash[_golden_key] = path, with_sizes(read_checkpoint(path), options.config)
        config.stash[_targets_key] = dict(dumps)

    def header(self, config: pytest.Config) -> list[str]:
        """Return what is compared with what."""
        from msprobe_hooks.messages import counted

        path, golden = config.stash[_golden_key]
        sides = [*config.stash[_targets_key].items(), (path, golden)]
        words = [
            f"{display_path(config, path)} ({one.kind}, {counted(len(one.names), 'tensor')})" for path, one in sides
        ]
        return [f"msprobe: checkpoint {' with '.join(words)}"]

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the summary and msprobe's report."""
        from pytest_msprobe.extensions.checkpoint.reporters import CheckpointJson, CheckpointSummary
        from pytest_msprobe.reports.page_file import PageReport

        path = config.stash[checkpoint_key].json
        reporters: dict[str, object] = {"msprobe-summary": CheckpointSummary()}
        if path is not None:
            reporters["msprobe-checkpoint"] = CheckpointJson(path)
        html = config.stash[_html_key]
        if html is not None:
            reporters["msprobe-html"] = PageReport(html, self._page_writer(config))
        return reporters

    def _page_writer(self, config: pytest.Config) -> Callable[[Path, Results], None]:
        from msprobe_hooks.messages import id_name, numbered
        from pytest_msprobe.extensions.checkpoint.items import write_checkpoint_page

        targets, (path, golden) = config.stash[_targets_key], config.stash[_golden_key]
        names = dict.fromkeys(name for one in (*targets.values(), golden) for name in one.names)
        order = {name: place for place, name in enumerate(numbered(map(id_name, names)))}
        sides = [display_path(config, side) for side in (*targets, path)]
        return partial(write_checkpoint_page, config=config, sides=sides, order=order)

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return the golden checkpoint's file and the limit."""
        return JournalFacts({"limit": f"{config.stash[checkpoint_key].limit:g}", "golden": self._golden_place(config)})

    def items(self, file: pytest.File, dump: Checkpoint) -> Iterable[JudgedItem]:
        """Return an item for each parameter of either side."""
        from pytest_msprobe.extensions.checkpoint.items import parameter_items
        from pytest_msprobe.extensions.checkpoint.same_model import EarlierSteps, paired
        from pytest_msprobe.extensions.model_names.model_names import model_names

        golden = file.config.stash[_golden_key][1]
        options = file.config.stash[checkpoint_key]
        names = model_names(options.names)
        earlier = EarlierSteps(dump, (*options.earlier, *golden.siblings), names)
        return parameter_items(file, paired(dump, golden, names), options.limit, earlier)

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return the golden checkpoint and the limit."""
        return words(config.stash[checkpoint_key])

    def _golden_place(self, config: pytest.Config) -> str:
        # A digest of gigabytes would take longer than comparing them.
        path = config.stash[_golden_key][0]
        return f"{path} of {path.stat().st_size} bytes"
