"""Communication: items fail where ranks disagree on what they said to each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.extensions.communication import declaration
from pytest_msprobe.run.collection import dumps_key
from pytest_msprobe.run.mode import JournalFacts
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.rerun_command import display_path
from pytest_msprobe.run.shared_options import html_file

if TYPE_CHECKING:
    from pytest_msprobe.extensions.communication.messages import Opened
    from pytest_msprobe.extensions.communication.truncated_dump import ReadDump
    from pytest_msprobe.run.item import JudgedItem

# What follows is loaded by runs that judge communication, not by every start of pytest.
_opened_key: pytest.StashKey[Opened] = pytest.StashKey()
_html_key: pytest.StashKey[Path | None] = pytest.StashKey()


class CommunicationMode:
    """``--msprobe-communication PATH``, over the dumps of all ranks of a step."""

    name = declaration().name
    flag = declaration().flag
    flag_help = declaration().flag_help
    shared_options = declaration().shared_options
    reads_torch_files = True

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read the file of the page."""
        config.stash[_html_key] = html_file(config)

    def find_files(self, folder: Path) -> list[Path]:
        """Return every dump below a folder. Raises DumpError where there is none."""
        from msprobe_hooks.dump.recording_paths import find_dumps

        return find_dumps(folder)

    def read_file(self, path: Path) -> ReadDump:
        """Read a dump, or what is left of one that was cut off. Raises DumpError."""
        from pytest_msprobe.extensions.communication.truncated_dump import read_truncated_dump

        return read_truncated_dump(path)

    def label(self, path: Path) -> str:
        """Return step and rank, as in ``step0/rank2``."""
        return "/".join(path.parent.parts[-2:])

    def needs_device(self, config: pytest.Config) -> bool:
        """Return False: nothing is computed again."""
        return False

    def open(self, config: pytest.Config, dumps: Mapping[Path, ReadDump]) -> None:
        """Match the calls of all ranks."""
        from pytest_msprobe.extensions.communication.messages import open_steps

        config.stash[_opened_key] = open_steps(dumps)

    def header(self, config: pytest.Config) -> list[str]:
        """Return the ranks of each step, and what is missing."""
        from pytest_msprobe.extensions.communication.judging import header_lines

        steps = config.stash[_opened_key].steps
        return header_lines(steps, {step.step.folder: display_path(config, step.step.folder) for step in steps})

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return what names the first communication that differs, the summary and msprobe's tables."""
        from pytest_msprobe.extensions.communication.judging import CommunicationReport
        from pytest_msprobe.reports.csv import CsvReport
        from pytest_msprobe.reports.page_file import PageReport
        from pytest_msprobe.reports.summary import Summary

        csv, dumps = config.stash[options_key].csv, config.stash[dumps_key]
        reporters: dict[str, object] = {
            "msprobe-communication": CommunicationReport(config.stash[_opened_key].steps),
            "msprobe-summary": Summary(module_records=0, kind="communications", lists_worst=False),
        }
        if csv is not None:
            reporters["msprobe-csv"] = CsvReport(csv, dict.fromkeys(dumps, PYTORCH), config.rootpath)
        html = config.stash[_html_key]
        if html is not None:
            from pytest_msprobe.extensions.communication.items import write_communication_page

            steps = config.stash[_opened_key].steps
            folders = [display_path(config, step.step.folder) for step in steps]
            write = partial(write_communication_page, config=config, steps=steps, folders=folders)
            reporters["msprobe-html"] = PageReport(html, write)
        return reporters

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return the dumps of ranks that were not named, and what says when calls began."""
        return JournalFacts({}, {str(path): path for path in config.stash[_opened_key].unnamed_files()})

    def items(self, file: pytest.File, dump: ReadDump) -> Iterable[JudgedItem]:
        """Return an item for each communication of which this rank is the first that took part."""
        from pytest_msprobe.extensions.communication.items import communication_items

        step, rank = file.config.stash[_opened_key].places[dump.dump.path]
        return communication_items(file, rank, step)

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return nothing: the dump's place says all."""
        return []
