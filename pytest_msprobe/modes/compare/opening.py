"""The dumps of both sides opened, and paired by the names of stages and the numbers of steps and ranks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msprobe_hooks.dump.reader import Dump
from msprobe_hooks.dump.recording_paths import StepRank, home_of, stages_of
from msprobe_hooks.errors import DumpError
from msprobe_hooks.messages import listed
from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.matching.name_translation import Translation, read_mapping, require_known
from pytest_msprobe.modes.compare.matching.reordering import named_calls
from pytest_msprobe.modes.compare.registry import ComparisonRegistry
from pytest_msprobe.modes.compare.runs import Runs, open_run, place_of_run, runs_of

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.measure.compared_sides import TensorTransformations
    from pytest_msprobe.modes.compare.measure.own_metrics import Metric
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.runs import Layout


_REMEDY = (
    "steps and ranks are paired by number; name the folders that both runs have; an engine and its trainer, or a step "
    "in other micro-batches, need task tensor, level L0 or mix, and --msprobe-match inference"
)
_REMEDY_OF_STAGES = "stages are paired by name; name the folders of those that both runs have"
_REMEDY_OF_MERGED = (
    "merged runs are paired by data parallel rank, as many on each side; correct the layouts, or name the folders "
    "that both runs have"
)


class _Place(NamedTuple):
    """Part of a run that a dump is."""

    numbers: StepRank
    stage: str

    def __str__(self) -> str:
        return f"stage {self.stage}, {self.numbers}" if self.stage else str(self.numbers)


@dataclass(frozen=True)
class Registered:
    """Parts that extensions, plugins and ``conftest.py`` files add to a comparison.

    ``transformations`` are those that were read for this run, None for none.
    """

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    transformations: TensorTransformations | None = None
    parts: ComparisonRegistry = field(default_factory=ComparisonRegistry)


def without_session(options: CompareOptions, metrics: Mapping[str, Metric] = {}) -> Registered:
    """Return what extensions add where there is no session of pytest. Raises OptionError."""
    parts = ComparisonRegistry()
    transformations = None if parts.transformations is None else parts.transformations(options, None)
    return Registered(metrics, transformations, parts)


def open_pairs(
    dumps: Mapping[Path, Dump],
    options: CompareOptions,
    policy: ComparePolicy,
    registered: Registered | None = None,
    partners: Mapping[Path, Path] | None = None,
) -> dict[Path, DumpPair]:
    """Pair the target's dumps with the golden ones, by stage, step and rank where there are several.

    A dump without records has no pair where the golden run has no records there either, or no dump.
    ``partners`` are what `partner_paths` gave for all dumps of the target, where ``dumps`` are some of them.
    Returns the pairs by the target's path. Raises DumpError or OptionError that names what does not fit.
    """
    registered = registered or without_session(options)
    paired = partner_paths(list(dumps), golden_paths(options), options) if partners is None else partners
    partners = {path: paired[path] for path in dumps if path in paired}
    opened = {path: open_run(path, options.golden_layout) for path in dict.fromkeys(partners.values())}
    layouts = (options.target_layout, options.golden_layout)
    dumps = {path: dump for path, dump in dumps.items() if path in partners}
    dumps = {path: dump for path, dump in dumps.items() if _has_calls(dump) or _has_calls(opened[partners[path]])}
    merged = registered.parts.merged_runs
    both = {path: (dump, opened[partners[path]]) for path, dump in dumps.items()}
    runs = {
        path: Runs(*sides) if merged is None else merged.whole_runs(*sides, layouts) for path, sides in both.items()
    }
    mapping: dict[str, str] = {}
    names = None if registered.parts.names is None else registered.parts.names(options)
    if options.mapping is not None:
        mapping = read_mapping(options.mapping)
        require_known(options.mapping, mapping, list(dumps.values()), list(opened.values()))
    pairs: dict[Path, DumpPair] = {}
    stages = stages_of(dumps)
    for index, path in enumerate(dumps):
        run = runs[path]
        target, golden, translation = run.target, run.golden, Translation()
        if names is not None:
            target, golden, translation = names.meet(target, golden, [*mapping, *mapping.values()])
        pairs[path] = DumpPair(
            index,
            target,
            golden,
            policy=policy,
            fuzzy=options.fuzzy,
            histograms=options.html is not None,
            mapping=mapping,
            translation=translation,
            place=place_of_run(path, options.target_layout),
            stage=stages[path],
            notes=run.notes,
            transformations=registered.transformations,
            metrics=registered.metrics,
        )
    for pair in pairs.values():
        _require_same_model(pair)
    unused = [] if names is None else names.unused([*dumps.values(), *opened.values()])
    for pair in pairs.values():
        pair.unused_mappings = unused
    return pairs


def golden_paths(options: CompareOptions) -> list[Path]:
    """Return the dumps of the golden run. Raises DumpError where there are none."""
    return runs_of(options.golden, options.golden_layout)


def partner_paths(targets: Sequence[Path], golden: Sequence[Path], options: CompareOptions) -> dict[Path, Path]:
    """Return the golden dump of each of the target's.

    Raises OptionError where a step or rank is on one side only; a target of one dump may be a choice of a larger run.
    """
    if len(targets) == len(golden) == 1:
        return {targets[0]: golden[0]}
    target_places = _by_place(targets, "target", options.target_layout)
    golden_places = _by_place(golden, "golden", options.golden_layout)
    golden_places = _by_rank_of(target_places, golden_places)
    target_places = _by_rank_of(golden_places, target_places)
    if len({place.stage for place in target_places}) == len({place.stage for place in golden_places}) == 1:
        # A user may compare one stage with another, or with a run of its own.
        target_places, golden_places = _without_stage(target_places), _without_stage(golden_places)
    missing = [
        place
        for place, path in target_places.items()
        if place not in golden_places and not is_empty(path, options.target_layout)
    ]
    is_chosen = len(targets) == 1 and not options.are_merged
    surplus = [
        place
        for place, path in golden_places.items()
        if not is_chosen and place not in target_places and not is_empty(path, options.golden_layout)
    ]
    if missing or surplus:
        place, side, own, other = (
            (missing[0], "golden run", golden_places, target_places)
            if missing
            else (surplus[0], "target", target_places, golden_places)
        )
        raise OptionError(
            f"the {side} has no dump of {place}; it has {listed((str(one) for one in own), 3) or 'none'}",
            file=home_of(other[place]),
            remedy=_REMEDY_OF_MERGED if options.are_merged else _REMEDY_OF_STAGES if place.stage else _REMEDY,
        )
    return {path: golden_places[place] for place, path in target_places.items() if place in golden_places}


def is_empty(path: Path, layout: Layout | None) -> bool:
    """Return whether a dump holds no records, as that of a step that was begun and in which nothing ran."""
    try:
        return not _has_calls(open_run(path, layout))
    except DumpError:
        # Its own error is reported where it is opened.
        return False


def _has_calls(dump: Dump) -> bool:
    """Return whether a dump holds records, or is of task structure and names calls in other files."""
    return bool(named_calls(dump).records)


def require_pairs(pairs: Collection[DumpPair], empty: Collection[Path]) -> None:
    """Raise DumpError where nothing is left to compare."""
    if not pairs:
        raise DumpError(f"{home_of(next(iter(empty)))}: holds no records; the recording stopped before its first call")


def _by_place(paths: Sequence[Path], side: str, layout: Layout | None) -> dict[_Place, Path]:
    places: dict[_Place, Path] = {}
    stages = stages_of(paths)
    for path in paths:
        place = _Place(place_of_run(path, layout), stages[path])
        if place in places:
            raise OptionError(
                f"the {side} has two dumps of {place}, the other is {places[place]}",
                file=path,
                remedy="put dumps into folders named step0, step1 ... and rank0, rank1 ...",
            )
        places[place] = path
    return places


def _by_rank_of(others: Mapping[_Place, Path], places: dict[_Place, Path]) -> dict[_Place, Path]:
    """Return dumps of a process that knew of no rank, by the rank of the other side where that is one process too."""
    ranks = {place.numbers.rank for place in others}
    if {place.numbers.rank for place in places} != {None} or len(ranks) != 1:
        return places
    (rank,) = ranks
    return {_Place(StepRank(numbers.step, rank), stage): path for (numbers, stage), path in places.items()}


def _without_stage(places: Mapping[_Place, Path]) -> dict[_Place, Path]:
    return {_Place(place.numbers, ""): path for place, path in places.items()}


def _require_same_model(pair: DumpPair) -> None:
    target, golden = pair.target, pair.golden
    for dump in (target, golden):
        if not dump.records:
            other = golden if dump is target else target
            raise DumpError(
                f"{dump.path}: holds no records, and {home_of(other.path)} holds {len(other.records)}; the recording "
                "stopped before its first call"
            )
        if pair.mode == "tensor" and not dump.tensor_folder.is_dir():
            raise DumpError(f"{dump.tensor_folder}: no such folder; copy the recorded tensors next to {dump.path.name}")
    if not any(match.target and match.golden for match in pair.matching.matches):
        raise DumpError(
            f"{home_of(target.path)}: none of its {len(target.records)} records matches one of {home_of(golden.path)}; "
            "compare runs of one model, ignore call numbers with -o msprobe_fuzzy=true, or name partners by "
            "--msprobe-mapping with data"
        )
