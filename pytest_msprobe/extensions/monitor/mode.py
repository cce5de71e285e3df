"""Monitored training: series fail where training went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import OptionError, RulesError
from pytest_msprobe.extensions.monitor import options as monitor_options
from pytest_msprobe.extensions.monitor.options import MONITOR, PageOptions, monitor_key
from pytest_msprobe.run.collection import make_folder
from pytest_msprobe.run.header import files_in_one_line
from pytest_msprobe.run.mode import JournalFacts
from pytest_msprobe.run.option_fields import words
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.rerun_command import display_path, rerun_step
from pytest_msprobe.run.shared_options import JSON

if TYPE_CHECKING:
    from msprobe_hooks.extensions.monitor.series.reader import Run
    from pytest_msprobe.extensions.monitor.judging import SeriesJudge
    from pytest_msprobe.extensions.monitor.replicas import Replicas
    from pytest_msprobe.run.item import JudgedItem

# What follows is loaded by runs that judge series, not by every start of pytest.
_runs_key: pytest.StashKey[dict[Path, Run]] = pytest.StashKey()
_page_key: pytest.StashKey[PageOptions | None] = pytest.StashKey()
_replicas_key: pytest.StashKey[Replicas] = pytest.StashKey()
_judges_key: pytest.StashKey[dict[Path, SeriesJudge]] = pytest.StashKey()


class MonitorMode:
    """``--msprobe-monitor RUN``, by rules or compared with ``--msprobe-golden RUN``."""

    name = MONITOR.name
    flag = MONITOR.flag
    shared_options = MONITOR.shared_options
    flag_help = MONITOR.flag_help

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read them."""
        config.stash[monitor_key] = monitor_options.read_options(config)
        config.stash[_page_key] = monitor_options.read_page_options(config)

    def find_files(self, folder: Path) -> list[Path]:
        """Return the file that represents each rank: the first of its folder."""
        from msprobe_hooks.extensions.monitor.series.reader import rank_folders
        from pytest_msprobe.extensions.monitor.series_names import first_file

        return [first_file(rank_folder) for rank_folder in rank_folders(folder)]

    def read_file(self, path: Path) -> Run:
        """Open the rank's run that a file belongs to."""
        from pytest_msprobe.extensions.monitor.series_names import open_run_of

        return open_run_of(path)

    def label(self, path: Path) -> str:
        """Return the name of the rank's folder, for the file's is of one of its tasks only."""
        return path.parent.name

    def needs_device(self, config: pytest.Config) -> bool:
        """Return False: nothing is computed again."""
        return False

    def open(self, config: pytest.Config, dumps: Mapping[Path, Run]) -> None:
        """Make each rank's judge, of the policy or of a golden run."""
        from pytest_msprobe.extensions.monitor.items import mark_lines
        from pytest_msprobe.extensions.monitor.judging import RuleJudge, load_policy

        try:
            policy = load_policy(config.stash[options_key].policy, config.stash[monitor_key].dtype)
        except RulesError as error:
            raise OptionError(f"--msprobe-policy: {error}") from None
        config.stash[_runs_key] = dict(dumps)
        options = config.stash[monitor_key]
        folders = _ranks_held_together(config, dumps)
        if len(folders) > 1 and policy.rank_rules and options.golden is None:
            from pytest_msprobe.extensions.monitor.replicas import Replicas

            config.stash[_replicas_key] = Replicas(folders, policy.rank_limit)
        replicas = config.stash.get(_replicas_key, None)
        judges: dict[Path, SeriesJudge] = {path: RuleJudge(run, policy, replicas) for path, run in dumps.items()}
        if options.golden is not None:
            from pytest_msprobe.extensions.monitor.golden.judge import golden_judges

            judges.update(golden_judges(dumps, options.golden, options.reruns, options.dtype, policy))
        config.stash[_judges_key] = judges
        for mark, meaning in mark_lines(judges.values()).items():
            config.addinivalue_line("markers", f"{mark}: {meaning}")

    def header(self, config: pytest.Config) -> list[str]:
        """Return the policy, the ranks' folders, and what is odd about their files."""
        options = config.stash[monitor_key]
        ranged = f", trained in {options.dtype}" if options.dtype else ""
        lines = [f"msprobe: monitored run, {_standard(config)}{ranged}"]
        runs = config.stash[_runs_key]
        counts = [(sum(len(run.keys) for run in runs.values()), "series")]
        lines.append(files_in_one_line(config, [run.folder for run in runs.values()], "ranks", counts))
        for path, run in runs.items():
            lines += [f"msprobe: {_rank_of(run)}{note}" for note in config.stash[_judges_key][path].notes]
        return lines

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return what names the first alarm, and the summary."""
        from pytest_msprobe.extensions.monitor.items import MonitorReport
        from pytest_msprobe.reports.summary import FailureList, Summary

        json = config.stash[monitor_key].json
        if json is not None:
            make_folder(JSON, json)
        runs, judges = config.stash[_runs_key], config.stash[_judges_key]
        notes = [f"{_rank_of(run)}{note}" for path, run in runs.items() for note in judges[path].notes]
        replicas = config.stash.get(_replicas_key, None)
        report = MonitorReport(config, [run.rank or 0 for run in runs.values()], notes, replicas)
        reporters: dict[str, object] = {
            "msprobe-monitor": report,
            "msprobe-failure-list": FailureList(report.is_listed),
            "msprobe-summary": Summary(module_records=0, kind="series", lists_worst=False),
        }
        page = config.stash[_page_key]
        if page is not None:
            from pytest_msprobe.extensions.monitor.page import MonitorPage

            judged = [(run, judges[path]) for path, run in runs.items()]
            title = ", ".join(text.partition("::")[0] for text in config.stash[options_key].dumps)
            reporters["msprobe-monitor-page"] = MonitorPage(
                page,
                judged,
                title=title,
                standard=_standard(config),
                files=[display_path(config, path) for path in runs],
                commands=[rerun_step(config)],
            )
        return reporters

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return what is judged, and how."""
        from pytest_msprobe.extensions.monitor.series_names import listing

        listings = {f"files {path.parent}": listing(path.parent) for path in config.stash[_runs_key]}
        return JournalFacts({**config.stash[monitor_key].settings(), **listings})

    def items(self, file: pytest.File, dump: Run) -> Iterable[JudgedItem]:
        """Return an item for each series of a rank."""
        from pytest_msprobe.extensions.monitor.items import series_items

        return series_items(file, file.config.stash[_judges_key][file.path])

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return the dtype and the policy."""
        policy = config.stash[options_key].policy
        of_policy = ["--msprobe-policy", policy] if policy != "default" else []
        return [*of_policy, *words(config.stash[monitor_key])]


def _ranks_held_together(config: pytest.Config, runs: Mapping[Path, Run]) -> list[Path]:
    """Return the folders of the ranks; for one series of one rank those of its neighbours too, as in the whole run."""
    from msprobe_hooks.extensions.monitor.series.paths import is_run_folder
    from msprobe_hooks.extensions.monitor.series.reader import rank_folders, whole_run

    folders = [run.folder for run in runs.values()]
    is_one_series = len(folders) == 1 and any("::" in text for text in config.stash[options_key].dumps)
    if is_one_series and is_run_folder(folders[0]):
        neighbours = rank_folders(whole_run(folders[0]))
        return neighbours if folders[0] in neighbours else folders
    return folders


def _rank_of(run: Run) -> str:
    """Return what a line on a rank's run begins with."""
    return "" if run.rank is None else f"rank {run.rank}: "


def _standard(config: pytest.Config) -> str:
    """Return in words what series are judged by."""
    options = config.stash[monitor_key]
    if options.golden is None:
        return f"by policy {config.stash[options_key].policy}"
    from msprobe_hooks.messages import counted

    learnt = f" and {counted(len(options.reruns), 'golden rerun')}" if options.reruns else ""
    return f"compared with {display_path(config, options.golden)}{learnt}"
