"""The search for overflow: records fail where inf or nan arises."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msprobe_hooks.dump.recording_paths import KERNEL_LEVEL, home_of
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.overflow import options as overflow_options
from pytest_msprobe.extensions.overflow.options import OVERFLOW, overflow_key
from pytest_msprobe.run.collection import dumps_key, make_folder, require_calls
from pytest_msprobe.run.mode import JournalFacts
from pytest_msprobe.run.options import options_key

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.option_fields import words
from pytest_msprobe.run.shared_options import JSON, html_file

_html_key: pytest.StashKey[Path | None] = pytest.StashKey()


class OverflowMode:
    """``--msprobe-overflow PATH``, by statistics alone or with ``--msprobe-overflow-replay``."""

    name = OVERFLOW.name
    flag = OVERFLOW.flag
    shared_options = OVERFLOW.shared_options
    reads_torch_files = True
    flag_help = OVERFLOW.flag_help

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read them."""
        config.stash[overflow_key] = overflow_options.read_options(config)
        config.stash[_html_key] = html_file(config)

    def needs_device(self, config: pytest.Config) -> bool:
        """Return whether anything is replayed: only that runs on the device."""
        return config.stash[overflow_key].replay

    def open(self, config: pytest.Config, dumps: Mapping[Path, Dump]) -> None:
        """Order the dumps by steps and ranks."""
        from pytest_msprobe.extensions.overflow.items import Findings, findings_key

        require_calls(dumps.values())
        options = config.stash[overflow_key]
        for path, dump in dumps.items():
            if dump.level == KERNEL_LEVEL:
                raise OptionError(
                    "holds kernels, not calls",
                    file=home_of(path),
                    remedy="find the kernel where two runs part with --msprobe-compare",
                )
            if options.replay and dump.framework != PYTORCH:
                raise OptionError(
                    f"recorded with {dump.framework}, which --msprobe-overflow-replay cannot replay",
                    file=path,
                    remedy="leave the option out to judge the recorded statistics",
                )
        config.stash[findings_key] = Findings(dumps.values(), options.rules)

    def header(self, config: pytest.Config) -> list[str]:
        """Return what fails, what is ignored, and the ranks' dumps."""
        from pytest_msprobe.extensions.overflow.overflow_report import header_lines

        return header_lines(config)

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the report on first culprits, the summary and msprobe's tables."""
        from pytest_msprobe.extensions.overflow.overflow_report import OverflowReport
        from pytest_msprobe.reports.csv import CsvReport
        from pytest_msprobe.reports.summary import Summary

        csv, json, dumps = config.stash[options_key].csv, config.stash[overflow_key].json, config.stash[dumps_key]
        if json is not None:
            make_folder(JSON, json)
        reporters: dict[str, object] = {"msprobe-overflow": OverflowReport(config)}
        reporters["msprobe-summary"] = Summary(module_records=0, kind="records")
        if csv is not None:
            reporters["msprobe-csv"] = CsvReport(csv, dict.fromkeys(dumps, PYTORCH), config.rootpath)
        html = config.stash[_html_key]
        if html is not None:
            from pytest_msprobe.extensions.overflow.items import write_overflow_page
            from pytest_msprobe.reports.page_file import PageReport

            reporters["msprobe-html"] = PageReport(html, partial(write_overflow_page, config=config))
        return reporters

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return what fails, and what a replay depends on."""
        return JournalFacts({**config.stash[options_key].settings(), **config.stash[overflow_key].settings()})

    def items(self, file: pytest.File, dump: Dump) -> Iterable[DumpItem]:
        """Return an item for each record that has inputs and outputs, or for each one to replay."""
        if file.config.stash[overflow_key].replay:
            from pytest_msprobe.extensions.overflow.overflow_report import replayed_items

            return replayed_items(file, dump)
        from pytest_msprobe.extensions.overflow.items import overflow_items

        return overflow_items(file, dump)

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return what fails, and for a replay what every run on a device depends on."""
        overflow = config.stash[overflow_key]
        return [*(config.stash[options_key].words() if overflow.replay else ()), *words(overflow)]
