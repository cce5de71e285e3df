"""Checkpoints: two of them, parameter by parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.extensions.checkpoint import options as checkpoint_options
from pytest_msprobe.extensions.checkpoint.options import CHECKPOINT, checkpoint_key
from pytest_msprobe.run.mode import JournalFacts
from pytest_msprobe.run.option_fields import words
from pytest_msprobe.run.rerun_command import display_path
from pytest_msprobe.run.shared_options import html_file

if TYPE_CHECKING:
    from pytest_msprobe.extensions.checkpoint.checkpoint_files import Checkpoint
    from pytest_msprobe.reports.page_file import Results
    from pytest_msprobe.run.item import JudgedItem

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
        config.stash[checkpoint_key] = checkpoint_options.read_options(config)
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
