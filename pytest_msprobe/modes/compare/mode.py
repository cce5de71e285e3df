"""The comparison: each call of one recorded run with its partner in another."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.journal import DIVIDED_DUMPS
from pytest_msprobe.modes.compare import options as compare_options
from pytest_msprobe.modes.compare.options import compare_key
from pytest_msprobe.modes.compare.registry import COMPARE
from pytest_msprobe.run.collection import absolute
from pytest_msprobe.run.header import empty_line
from pytest_msprobe.run.mode import JournalFacts
from pytest_msprobe.run.option_fields import is_passed
from pytest_msprobe.run.options import options_key
from pytest_msprobe.run.rerun_command import display_path
from pytest_msprobe.run.shared_options import JSON

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.opening import Registered
    from pytest_msprobe.modes.compare.registry import ComparisonKind, ComparisonRegistry, OpenComparison
    from pytest_msprobe.run.item import DumpItem

# What follows is loaded by runs that compare, not by every start of pytest.
_pairs_key: pytest.StashKey[dict[Path, DumpPair]] = pytest.StashKey()
# In the place of pairs where a comparison is of a kind of its own.
_other_key: pytest.StashKey[OpenComparison] = pytest.StashKey()
_parts_key: pytest.StashKey[ComparisonRegistry] = pytest.StashKey()
# The target's dumps that have no pair, as they hold no records.
_empty_key: pytest.StashKey[list[Path]] = pytest.StashKey()
_registered_key: pytest.StashKey[Registered] = pytest.StashKey()
# Of a divided comparison the target's dumps of all shards, and the golden dump of each: listing thousands of folders on
# shared storage takes long.
_targets_key: pytest.StashKey[list[Path]] = pytest.StashKey()
_partners_key: pytest.StashKey[Mapping[Path, Path]] = pytest.StashKey()


class FrozenDumps:
    """The plugin that keeps dumps and items, which live as long as the process, out of later garbage collections."""

    def pytest_collection_finish(self) -> None:
        """Keep the objects that exist after collection out of garbage collection."""
        gc.freeze()


class CompareMode:
    """``--msprobe-compare PATH --msprobe-golden PATH``."""

    name = COMPARE.name
    flag = COMPARE.flag
    flag_help = COMPARE.flag_help
    shared_options = COMPARE.shared_options
    reads_torch_files = True
    divides_dumps = True

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read them, with those of the parts."""
        from pytest_msprobe.modes.compare.registry import ComparisonRegistry

        config.stash[_parts_key] = registry = ComparisonRegistry()
        config.hook.pytest_msprobe_register_comparisons(registry=registry)
        config.stash[compare_key] = compare_options.read_options(config, registry.options)

    def needs_device(self, config: pytest.Config) -> bool:
        """Return False: nothing is computed again."""
        return False

    def runs_of(self, config: pytest.Config, folder: Path) -> list[Path]:
        """Return the dumps of the shard below a folder, of merged ranks only the first, as of a kind of its own."""
        from pytest_msprobe.modes.compare.runs import dumps_of_shard, runs_of

        dumps = runs_of(folder, config.stash[compare_key].target_layout)
        if _kind_of(config, folder) is not None:
            dumps = dumps[:1]
        shard = config.stash[options_key].shard
        if shard is None:
            return dumps
        config.stash.setdefault(_targets_key, []).extend(dumps)
        return dumps_of_shard(dumps, shard, folder)

    def open_run(self, config: pytest.Config, path: Path) -> Dump:
        """Read a dump with the ranks that are merged with it."""
        from pytest_msprobe.modes.compare.runs import open_run

        return open_run(path, config.stash[compare_key].target_layout)

    def open(self, config: pytest.Config, dumps: Mapping[Path, Dump]) -> None:
        """Open the golden dumps and pair both sides."""
        from pytest_msprobe.modes.compare.judging.policy import load_policy
        from pytest_msprobe.modes.compare.opening import golden_paths, open_pairs, partner_paths, require_pairs

        config.pluginmanager.register(FrozenDumps(), "msprobe-frozen-dumps")
        config.stash[_registered_key] = registered = _registered(config)
        try:
            policy = load_policy(config.stash[options_key].policy, registered.metrics)
        except ValueError as error:
            raise OptionError(f"--msprobe-policy: {error}") from None
        first = next(iter(dumps), None)
        kind = None if first is None else _kind_of(config, first)
        if kind is not None:
            config.stash[_other_key] = kind.open_comparison([*dumps], config.stash[compare_key], policy)
            return
        if is_passed(config, JSON):
            raise OptionError(
                f"{JSON} has what a comparison with an inference engine finds, and neither run is of one",
                remedy="pass --msprobe-csv DIR for tables",
            )
        compare, partners = config.stash[compare_key], None
        if config.stash[options_key].shard is not None:
            partners = partner_paths(_all_targets(config, dumps), golden_paths(compare), compare)
            config.stash[_partners_key] = partners
        config.stash[_pairs_key] = pairs = open_pairs(dumps, compare, policy, registered, partners)
        config.stash[_empty_key] = empty = [path for path in dumps if path not in pairs]
        require_pairs(pairs.values(), empty)

    def header(self, config: pytest.Config) -> list[str]:
        """Return the policy, and what is compared with what."""
        if _other_key in config.stash:
            return config.stash[_other_key].header(config)
        pairs = list(config.stash[_pairs_key].values())
        first = pairs[0]
        left_out: list[Path] = config.stash[_empty_key]
        empty = empty_line(left_out, "not compared")
        target, golden = (display_path(config, dump.path) for dump in (first.target, first.golden))
        is_one_file = first.target.path.resolve() == first.golden.path.resolve()
        several = f"{len(pairs)} pairs of dumps, the first " if len(pairs) > 1 else ""
        compare = config.stash[compare_key]
        layouts = {"target": compare.target_layout, "golden run": compare.golden_layout}
        transformed = first.transformations.header() if first.transformations is not None else ""
        merged = ", ".join(f"{side} by {layout}" for side, layout in layouts.items() if layout)
        return [
            f"msprobe: comparing by policy {config.stash[options_key].policy}",
            f"msprobe: {several}{target} with {golden} ({first.mode})",
            *(["msprobe: warning: the target and the golden run are one file"] if is_one_file else []),
            *([f"msprobe: shard {config.stash[options_key].shard}"] if config.stash[options_key].shard else []),
            *([f"msprobe: ranks merged, {merged}"] if merged else []),
            *([f"msprobe: {transformed}"] if transformed else []),
            *([f"msprobe: {empty}"] if empty else []),
            *_about_feeding(pairs),
        ]

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the collected calls, the summary, and what writes tables and page."""
        from pytest_msprobe.modes.compare.rows import ComparedCalls, compared_key
        from pytest_msprobe.modes.compare.summary import CompareSummary
        from pytest_msprobe.reports.summary import FailureList

        options, compare = config.stash[options_key], config.stash[compare_key]
        if _other_key in config.stash:
            config.stash[compared_key] = calls = ComparedCalls()
            return config.stash[_other_key].reporters(calls, compare, options)
        pairs = list(config.stash[_pairs_key].values())
        config.stash[compared_key] = calls = ComparedCalls()
        reporters: dict[str, object] = {
            "msprobe-compared-calls": calls,
            "msprobe-compare-summary": CompareSummary(pairs, calls, names_inherited=config.get_verbosity() > 0),
            "msprobe-failure-list": FailureList(lambda report: getattr(report, "msprobe_cause", "") != "inherited"),
        }
        if options.csv or compare.xlsx or compare.html:
            from pytest_msprobe.modes.compare.reporting import CompareReports

            parts = config.stash[_parts_key]
            reports = CompareReports(compare, options.csv, options.policy, pairs, calls, parts)
            reporters["msprobe-compare-reports"] = reports
        return reporters

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return how calls find each other, and the golden dumps."""
        from pytest_msprobe.modes.compare.runs import ranks_of

        compare = config.stash[compare_key]
        if _other_key in config.stash:
            return JournalFacts(compare.settings(), config.stash[_other_key].other_files())
        files: dict[str, Path] = {}
        for pair in config.stash[_pairs_key].values():
            files |= {f"golden {path}": path for path in ranks_of(pair.golden.path, compare.golden_layout)}
            # That by which the target goes is among the run's own.
            files |= {f"target {path}": path for path in ranks_of(pair.target.path, compare.target_layout)[1:]}
        registered = config.stash[_registered_key]
        settings = {"metrics": ", ".join(registered.metrics)}
        if registered.transformations is not None:
            files |= {f"transformation {path}": path for path in registered.transformations.files}
            settings |= registered.transformations.settings()
        if config.stash[options_key].shard is not None:
            from pytest_msprobe.modes.compare.runs import digest_of_runs

            partners = config.stash[_partners_key]
            settings[DIVIDED_DUMPS] = digest_of_runs([*partners, *partners.values()])
        return JournalFacts({**compare.settings(), **settings}, files)

    def items(self, file: pytest.File, dump: Dump) -> Iterable[DumpItem]:
        """Return an item for each call of the target and the golden run."""
        from pytest_msprobe.modes.compare.items import compared_items

        if _other_key in file.config.stash:
            return file.config.stash[_other_key].items(file, dump)
        pair = file.config.stash[_pairs_key].get(file.path)
        return () if pair is None else compared_items(file, pair, quick=file.config.stash[compare_key].quick)

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return the golden run, how calls find each other, and the policy."""
        return [*config.stash[compare_key].words(), *config.stash[options_key].words(with_device=False)]


def _all_targets(config: pytest.Config, dumps: Iterable[Path]) -> list[Path]:
    """Return the target's dumps of all shards. Raises OptionError where a single dump is to be divided."""
    from pytest_msprobe.modes.compare.runs import dumps_of_shard

    options = config.stash[options_key]
    assert options.shard is not None
    for path in (absolute(config, text) for text in options.dumps):
        if not path.is_dir():
            dumps_of_shard([path], options.shard, path)
    return [*dict.fromkeys([*config.stash[_targets_key], *dumps])]


def _kind_of(config: pytest.Config, target: Path) -> ComparisonKind | None:
    """Return the kind of comparison that is meant, None for that of calls."""
    kinds = config.stash[_parts_key].kinds.values()
    return next((kind for kind in kinds if kind.is_meant(config.stash[compare_key], target)), None)


def _registered(config: pytest.Config) -> Registered:
    """Return what extensions and plugins add. Raises OptionError where something cannot be added."""
    from pytest_msprobe.modes.compare.measure.own_metrics import CompareMetricRegistry
    from pytest_msprobe.modes.compare.opening import Registered

    metrics, parts = CompareMetricRegistry(), config.stash[_parts_key]
    try:
        config.hook.pytest_msprobe_register_compare_metrics(registry=metrics)
    except ValueError as error:
        raise OptionError(f"conftest.py or plugin: {error}") from None
    read = parts.transformations
    transformations = None if read is None else read(config.stash[compare_key], config)
    return Registered(metrics.metrics, transformations, parts)


def _about_feeding(pairs: Sequence[DumpPair]) -> Iterator[str]:
    """Yield a line about the modules that were fed in the first pair in which some were."""
    from msprobe_hooks.dump.fed_calls import fed_calls
    from pytest_msprobe.modes.compare.judging.fed_modules import header_line

    for pair in pairs:
        line = header_line(pair.fed, "target", pair.golden.path)
        line = line or header_line(fed_calls(pair.golden), "golden run", pair.target.path)
        if line:
            yield f"msprobe: {line}"
            return
