"""Environments: what two trainings were started with, fact by fact, with two options shared with other modes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.run.collection import make_folder
from pytest_msprobe.run.mode import DeclaredMode, JournalFacts
from pytest_msprobe.run.rerun_command import display_path
from pytest_msprobe.run.shared_options import GOLDEN, HTML, XLSX, golden_path, html_file, xlsx_folder

if TYPE_CHECKING:
    from pytest_msprobe.extensions.environment.fact_pairs import Opened
    from pytest_msprobe.extensions.environment.msprobe_pack import Facts
    from pytest_msprobe.run.item import JudgedItem


@dataclass(frozen=True, slots=True)
class EnvironmentOptions:
    """The launch configuration to compare with, and the folder of msprobe's workbook, None for none."""

    golden: Path
    xlsx: Path | None


environment_key = pytest.StashKey[EnvironmentOptions]()


def read_options(config: pytest.Config) -> EnvironmentOptions:
    """Read and check the options. Raises OptionError that says what is wrong."""
    return EnvironmentOptions(golden_path(config, "--msprobe-environment", "launch configuration"), xlsx_folder(config))


ENVIRONMENT = DeclaredMode(
    name="environment",
    flag="--msprobe-environment",
    flag_help=(
        "compare this launch configuration with --msprobe-golden: a folder that msprobe_hooks.write_environment wrote, "
        "one rank's file, or msprobe's config_check_pack.zip"
    ),
    home="pytest_msprobe.extensions.environment.mode:EnvironmentMode",
    shared_options=(GOLDEN, XLSX, HTML),
)

# What follows is loaded by runs that judge starts, not by every start of pytest.
_opened_key: pytest.StashKey[Opened] = pytest.StashKey()
_html_key: pytest.StashKey[Path | None] = pytest.StashKey()


class EnvironmentMode:
    """``--msprobe-environment PATH --msprobe-golden PATH``."""

    name = ENVIRONMENT.name
    flag = ENVIRONMENT.flag
    flag_help = ENVIRONMENT.flag_help
    shared_options = ENVIRONMENT.shared_options

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read those that it shares."""
        config.stash[environment_key] = read_options(config)
        config.stash[_html_key] = html_file(config)

    def find_files(self, folder: Path) -> list[Path]:
        """Return the file of each rank."""
        from pytest_msprobe.extensions.environment.fact_pairs import start_files

        return start_files(folder)

    def read_file(self, path: Path) -> dict[int, Facts]:
        """Return the facts of each rank of a file."""
        from pytest_msprobe.extensions.environment.fact_pairs import read_starts

        return read_starts(path)

    def label(self, path: Path) -> str:
        """Return the rank, or the name of the archive."""
        return path.stem if path.suffix == ".json" else path.name

    def needs_device(self, config: pytest.Config) -> bool:
        """Return False: nothing is computed again."""
        return False

    def open(self, config: pytest.Config, dumps: Mapping[Path, dict[int, Facts]]) -> None:
        """Pair the facts of both environments."""
        from pytest_msprobe.extensions.environment.fact_pairs import open_starts
        from pytest_msprobe.extensions.environment.items import MARKS

        config.stash[_opened_key] = open_starts(dumps, config.stash[environment_key].golden)
        for mark, meaning in MARKS.items():
            config.addinivalue_line("markers", f"{mark}: {meaning}")

    def header(self, config: pytest.Config) -> list[str]:
        """Return what is compared, and what only one side has."""
        golden = display_path(config, config.stash[environment_key].golden)
        opened = config.stash[_opened_key]
        return [f"msprobe: training environment, compared with {golden}", *(f"msprobe: {n}" for n in opened.notes)]

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return what names the facts that differ and writes msprobe's workbook, and the summary."""
        from pytest_msprobe.extensions.environment.items import EnvironmentReport
        from pytest_msprobe.reports.summary import Summary

        folder = config.stash[environment_key].xlsx
        if folder is not None:
            make_folder(XLSX, folder)
        reporters: dict[str, object] = {
            "msprobe-environment": EnvironmentReport(config.stash[_opened_key].ranked(), folder),
            "msprobe-summary": Summary(module_records=0, kind="facts", lists_worst=False),
        }
        html = config.stash[_html_key]
        if html is not None:
            from pytest_msprobe.extensions.environment.items import write_environment_page
            from pytest_msprobe.reports.page_file import PageReport

            golden = display_path(config, config.stash[environment_key].golden)
            write = partial(write_environment_page, config=config, opened=config.stash[_opened_key], golden=golden)
            reporters["msprobe-html"] = PageReport(html, write)
        return reporters

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return the golden files."""
        from pytest_msprobe.extensions.environment.fact_pairs import files_of

        return JournalFacts(
            {}, {f"golden {path.name}": path for path in files_of(config.stash[environment_key].golden)}
        )

    def items(self, file: pytest.File, dump: dict[int, Facts]) -> Iterable[JudgedItem]:
        """Return an item for each fact that both sides looked at."""
        from pytest_msprobe.extensions.environment.items import fact_items

        return fact_items(file, file.config.stash[_opened_key].named(file.path))

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return the golden start."""
        return [GOLDEN, str(config.stash[environment_key].golden)]
