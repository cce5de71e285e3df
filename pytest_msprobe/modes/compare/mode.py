"""The comparison: each call of one recorded run with its partner in another."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.compare import options as compare_options
from pytest_msprobe.modes.compare.options import compare_key
from pytest_msprobe.run.mode import JournalFacts
from pytest_msprobe.run.options import display_path, options_key

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.shared_options import GOLDEN, HTML, VIS, XLSX

# What follows is loaded by runs that compare, not by every start of pytest.
_pairs_key: pytest.StashKey[dict[Path, DumpPair]] = pytest.StashKey()


class FrozenDumps:
    """The plugin that keeps dumps and items, which live as long as the process, out of later garbage collections."""

    def pytest_collection_finish(self) -> None:
        """Keep the objects that exist after collection out of garbage collection."""
        gc.freeze()


class CompareMode:
    """``--msprobe-compare PATH --msprobe-golden PATH``."""

    name = "compare"
    flag = "--msprobe-compare"
    flag_help = "compare this run with --msprobe-golden: a dump.json, or a folder of steps and ranks"
    shared_options = (GOLDEN, XLSX, HTML, *VIS)
    reads_torch_files = True

    def add_options(self, group: pytest.OptionGroup) -> None:
        """Add the options of a comparison."""
        compare_options.add_options(group)

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read them, or refuse those that only a comparison understands."""
        if is_chosen:
            config.stash[compare_key] = compare_options.read_options(config)
        else:
            compare_options.refuse_without_target(config)

    def needs_device(self, config: pytest.Config) -> bool:
        """Return False: nothing is computed again."""
        return False

    def runs_of(self, config: pytest.Config, folder: Path) -> list[Path]:
        """Return the dumps below a folder, of ranks that are merged only the first."""
        from pytest_msprobe.modes.compare.merged_ranks import runs_of

        return runs_of(folder, config.stash[compare_key].target_layout)

    def open_run(self, config: pytest.Config, path: Path) -> Dump:
        """Read a dump with the ranks that are merged with it."""
        from pytest_msprobe.modes.compare.merged_ranks import open_run

        return open_run(path, config.stash[compare_key].target_layout)

    def open(self, config: pytest.Config, dumps: Mapping[Path, Dump]) -> None:
        """Open the golden dumps and pair both sides."""
        from pytest_msprobe.graphs.building import require_modules
        from pytest_msprobe.modes.compare.judging.policy import load_policy
        from pytest_msprobe.modes.compare.opening import open_pairs

        config.pluginmanager.register(FrozenDumps(), "msprobe-frozen-dumps")
        try:
            policy = load_policy(config.stash[options_key].policy)
        except ValueError as error:
            raise OptionError(f"--msprobe-policy: {error}") from None
        config.stash[_pairs_key] = open_pairs(dumps, config.stash[compare_key], policy)
        if config.stash[compare_key].vis is not None:
            require_modules([*dumps.values(), *(pair.golden for pair in config.stash[_pairs_key].values())])

    def header(self, config: pytest.Config) -> list[str]:
        """Return the policy, and what is compared with what."""
        pairs = list(config.stash[_pairs_key].values())
        first = pairs[0]
        target, golden = (display_path(config, dump.path) for dump in (first.target, first.golden))
        several = f"{len(pairs)} pairs of dumps, the first " if len(pairs) > 1 else ""
        compare = config.stash[compare_key]
        layouts = {"target": compare.target_layout, "golden run": compare.golden_layout}
        merged = ", ".join(f"{side} by {layout}" for side, layout in layouts.items() if layout)
        return [
            f"msprobe: comparing by policy {config.stash[options_key].policy}",
            f"msprobe: {several}{target} with {golden} ({first.mode})",
            *([f"msprobe: ranks merged, {merged}"] if merged else []),
        ]

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the collected calls, the summary, and what writes tables and page."""
        from pytest_msprobe.modes.compare.rows import ComparedCalls, compared_key
        from pytest_msprobe.modes.compare.summary import CompareSummary

        options, compare = config.stash[options_key], config.stash[compare_key]
        pairs = list(config.stash[_pairs_key].values())
        config.stash[compared_key] = calls = ComparedCalls()
        reporters: dict[str, object] = {
            "msprobe-compared-calls": calls,
            "msprobe-compare-summary": CompareSummary(pairs, calls),
        }
        if options.csv or compare.xlsx or compare.html:
            from pytest_msprobe.modes.compare.reporting import CompareReports

            reports = CompareReports(compare, options.csv, options.policy, pairs, calls)
            reporters["msprobe-compare-reports"] = reports
        if compare.vis is not None and not config.option.collectonly:
            from pytest_msprobe.modes.compare.graphs import CompareGraphs

            for stage in dict.fromkeys(pair.stage for pair in pairs):
                vis = replace(compare.vis, folder=compare.vis.folder / stage)
                of_stage = [pair for pair in pairs if pair.stage == stage]
                reporters[f"msprobe-compare-graphs{stage}"] = CompareGraphs(vis, of_stage, calls)
        return reporters

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return how calls find each other, and the golden dumps."""
        from pytest_msprobe.modes.compare.merged_ranks import ranks_of

        compare = config.stash[compare_key]
        files: dict[str, Path] = {}
        for pair in config.stash[_pairs_key].values():
            files |= {f"golden {path}": path for path in ranks_of(pair.golden.path, compare.golden_layout)}
            # That by which the target goes is among the run's own.
            files |= {f"target {path}": path for path in ranks_of(pair.target.path, compare.target_layout)[1:]}
        return JournalFacts(compare.settings(), files)

    def items(self, file: pytest.File, dump: Dump) -> Iterable[DumpItem]:
        """Return an item for each call of the target and the golden run."""
        from pytest_msprobe.modes.compare.items import compared_items

        return compared_items(
            file, file.config.stash[_pairs_key][file.path], quick=file.config.stash[compare_key].quick
        )

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return the golden run, how calls find each other, and the policy."""
        return [*config.stash[compare_key].words(), *config.stash[options_key].words(with_device=False)]
