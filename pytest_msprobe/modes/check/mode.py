"""The check: each API record of a dump is replayed on the device and judged against a golden result."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from msprobe_hooks.errors import DumpError
from pytest_msprobe.devices.math_modes import environment_modes
from pytest_msprobe.engine.framework_names import PYTORCH, checked_as
from pytest_msprobe.engine.frameworks import frameworks, missing_piece
from pytest_msprobe.modes.check import options as check_options
from pytest_msprobe.modes.check.baselines import reporter as baselines
from pytest_msprobe.modes.check.baselines.tensor_folder import tensors_folder
from pytest_msprobe.modes.check.dump_checks import dump_checks
from pytest_msprobe.modes.check.features import features_of
from pytest_msprobe.modes.check.html_report import CheckPage
from pytest_msprobe.modes.check.items import checked_records
from pytest_msprobe.modes.check.layout_choice import LayoutTally
from pytest_msprobe.modes.check.options import CHECK, CheckOptions, check_key
from pytest_msprobe.modes.check.rerun_results import BatchInvarianceTally, RepeatsTally
from pytest_msprobe.modes.check.saved_case import SavedTally
from pytest_msprobe.modes.check.tallies import (
    LeftOpenTally,
    MathModeTally,
    NarrowSumsTally,
    UnusedTensorsTally,
)
from pytest_msprobe.reports.csv import CsvReport
from pytest_msprobe.reports.summary import Summary, Tally
from pytest_msprobe.reports.worst_margins import CardsReport
from pytest_msprobe.run.collection import dumps_key, require_calls
from pytest_msprobe.run.header import empty_line, files_in_one_line, kinds_of
from pytest_msprobe.run.mode import JournalFacts
from pytest_msprobe.run.msprobe_config import run_ut
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.setups import setups_key

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.run.item import DumpItem


class CheckMode:
    """``--msprobe-dump``, and any dump among pytest's arguments."""

    name = CHECK.name
    flag = CHECK.flag
    flag_help = CHECK.flag_help
    shared_options = CHECK.shared_options
    reads_torch_files = True

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Keep them also where tests of the user's own are all that is checked."""
        config.stash[check_key] = check_options.read_options(config, is_chosen=is_chosen)

    def needs_device(self, config: pytest.Config) -> bool:
        """Return True: every record is replayed."""
        return True

    def open(self, config: pytest.Config, dumps: Mapping[Path, Dump]) -> None:
        """Check that the dumps can be replayed, and that the baseline belongs to them."""
        config.hook.pytest_msprobe_register_dump_checks(registry=dump_checks())
        config.hook.pytest_msprobe_register_frameworks(registry=frameworks())
        require_checkable(dumps.values(), config.stash[check_key])
        if config.stash[check_key].save_baseline is not None:
            config.stash[setups_key].measure_all()
        baselines.open_baseline(config, dumps)

    def header(self, config: pytest.Config) -> list[str]:
        """Return policy, device, seed, math modes, dumps and baseline."""
        options = config.stash[options_key]
        level = f" level {options.level}" if options.level else ""
        lines = [f"msprobe: policy {options.policy}{level}, device {options.device}, seed {options.seed}"]
        lines += [f"msprobe: {name}={value}" for name, value in environment_modes().items()]
        lines += run_ut(config).header()
        shard = [f"msprobe: shard {options.shard}"] if options.shard is not None else []
        dumps = config.stash[dumps_key]
        empty = empty_line([path for path, dump in dumps.items() if not dump.records], "not checked")
        about_empty = [f"msprobe: {empty}"] if empty else []
        if any(dump.module_count and not dump.api_names for dump in dumps.values()):
            about_empty.append("msprobe: modules alone (level L0) are compared, not checked: record level mix or L1")
        return [*lines, _dumps_in_words(config), *about_empty, *shard, *baselines.header(config)]

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the summary, msprobe's tables and what writes a baseline."""
        dumps, csv = config.stash[dumps_key], config.stash[options_key].csv
        modules = sum(dump.module_count for dump in dumps.values())
        tallies: tuple[Tally, ...] = (
            LeftOpenTally(),
            NarrowSumsTally(),
            MathModeTally(),
            LayoutTally(config.stash[options_key].layout, dumps.values()),
            RepeatsTally(),
            BatchInvarianceTally(),
            *features_of(config).tallies(in_detail=config.get_verbosity() > 1),
            UnusedTensorsTally(),
            SavedTally(),
        )
        reporters: dict[str, object] = {
            "msprobe-summary": Summary(modules, tallies=tallies, names_weak=config.get_verbosity() > 0)
        }
        if getattr(config.option, "dist", "no") == "each":
            reporters["msprobe-cards"] = CardsReport()
        html = config.stash[check_key].html
        if html is not None and not config.option.collectonly:
            reporters["msprobe-html"] = CheckPage(config, html, config.stash[check_key].history)
        if csv is not None:
            reporters["msprobe-csv"] = CsvReport(csv, _frameworks(config), config.rootpath, run_ut(config).precision)
        for feature in config.stash[check_key].features:
            reporters |= feature.reporters(config)
        if dumps and config.stash[check_key].save_baseline is not None and not config.option.collectonly:
            reporters["msprobe-save-baseline"] = baselines.baseline_report(config)
        return reporters

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return what decides a verdict but for the policy, and whose dumps these are where not all are PyTorch's."""
        settings = config.stash[options_key].settings() | config.stash[check_key].settings()
        frameworks = set(_frameworks(config).values())
        if frameworks - {PYTORCH}:
            settings["framework"] = " ".join(sorted(frameworks))
        return JournalFacts(settings)

    def files_beside(self, config: pytest.Config) -> Mapping[Path, Path]:
        """Return the baseline to judge by."""
        baseline = config.stash[check_key].baseline
        return {} if baseline is None else {baseline: tensors_folder(baseline)}

    def folders_written(self, config: pytest.Config) -> Mapping[Path, int]:
        """Return those of saved cases and of a baseline's tensors."""
        check = config.stash[check_key]
        return {saved.folder: saved.folder_limit for saved in (check.save, check.save_baseline_tensors) if saved}

    def items(self, file: pytest.File, dump: Dump) -> Iterable[DumpItem]:
        """Return an item for each API record, or for what else the dump holds."""
        check = dump_checks().of(dump)
        return checked_records(file, dump) if check is None else check.items(file, dump)

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return the options that decide a verdict."""
        return [*config.stash[options_key].words(), *config.stash[check_key].words()]


def require_checkable(dumps: Collection[Dump], options: CheckOptions) -> None:
    """Raise DumpError, or OptionError for an option, where a dump's records cannot be checked here."""
    require_calls(dumps)
    by_kind: dict[str, list[Dump]] = {}
    for dump in dumps:
        by_kind.setdefault(dump.kind, []).append(dump)
    for same in by_kind.values():
        check = dump_checks().of(same[0])
        if check is not None:
            check.require_checkable(same, options)
    for dump in dumps:
        missing = missing_piece(checked_as(dump))
        if missing is not None:
            raise DumpError(f"{dump.path}: recorded with {dump.framework}, but {missing}")
        frameworks().get(checked_as(dump)).prepare()


def _dumps_in_words(config: pytest.Config) -> str:
    """Return one line on however many dumps."""
    dumps = config.stash[dumps_key]
    records = sum(len(dump.api_names) for dump in dumps.values())
    modules = sum(dump.module_count for dump in dumps.values())
    counts = [(records, "API record"), (modules, "module record")]
    return files_in_one_line(config, [*dumps], "dumps", counts, kinds_of(dumps.values()))


def _frameworks(config: pytest.Config) -> dict[Path, str]:
    """Return by each dump the framework that recorded it."""
    return {path: dump.framework for path, dump in config.stash[dumps_key].items()}
