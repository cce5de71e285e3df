"""A comparison with an engine as a run of pytest: its dumps, header, reporters, and each value as an item."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.dump.recording_paths import find_dumps, rank_in_recording, step_rank
from msprobe_hooks.errors import DumpError
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import counted
from msprobe_hooks.regular_files import read_regular
from msprobe_standards.verdict import Verdict
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.inference.options import (
    MATCH,
    PROFILE,
    InferenceOptions,
    are_called_alike,
    has_tensors,
    is_engine,
    no_rows,
)
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes, sizes_of_config
from pytest_msprobe.extensions.model_names.model_names import model_names
from pytest_msprobe.modes.compare.judging.shape_changes import MicroBatches, micro_batches
from pytest_msprobe.modes.compare.rows import SCALED_ERROR, ComparedCall, ComparedCalls, Row, encode
from pytest_msprobe.results.outcomes import BaseSkipReason
from pytest_msprobe.results.result import DirectionResult, OutputResult
from pytest_msprobe.run.item import DumpItem
from pytest_msprobe.run.rerun_command import display_path
from pytest_msprobe.run.shared_options import MODEL_CONFIG

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.extensions.inference.inference_pair import InferencePair
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.run.options import Options


STANDARD = "inference"


def recording_of(path: Path) -> Path:
    """Return the folder of the recording that a dump belongs to, with all its steps and ranks."""
    if not path.is_file():
        return path
    folder = path.parent
    if rank_in_recording(folder) is not None:
        folder = folder.parent
    place = step_rank(path)
    return folder.parent if place.step is not None and folder.name == f"step{place.step}" else folder


def is_inference(options: CompareOptions, target: Path) -> bool:
    """Return whether a run compares token by token: as asked for, else by the modules and shapes of both runs.

    Raises OptionError for an option that only a comparison of calls understands.
    """
    inference = options.part(InferenceOptions)
    match = inference.match
    if inference.profile is not None:
        if match == "calls":
            raise OptionError(f"{PROFILE} does not work with {MATCH} calls", remedy="remove one of them")
        match = "inference"
    if match == "calls" or (match is None and options.of_calls):
        return False
    if match is None:
        if not (has_tensors(target) and has_tensors(options.golden)):
            _refuse_tokens_without_rows(target, options.golden)
            return False
        return is_engine(target) != is_engine(options.golden) or _are_tokens_cut_otherwise(target, options.golden)
    if options.of_calls:
        raise OptionError(f"{options.of_calls} does not work with {MATCH} inference", remedy="remove one of them")
    return True


def _refuse_tokens_without_rows(target: Path, golden: Path) -> None:
    """Raise OptionError where one of two runs is an engine's, both have other steps, and one has no tensors.

    Their calls cannot be compared either: the steps of an engine are no steps of a training.
    """
    folders = recording_of(target), recording_of(golden)
    try:
        counts = [1 if folder.is_file() else len(find_dumps(folder)) for folder in folders]
        if counts[0] == counts[1] or is_engine(folders[0]) == is_engine(folders[1]):
            return
        path = next(folder for folder in folders if not has_tensors(folder))
        task = read_dump(path if path.is_file() else find_dumps(path)[0]).task
    except DumpError:
        # What is wrong with a dump is reported where it is opened.
        return
    raise OptionError(f"an engine and its trainer are compared token by token, and {no_rows(task)}", file=path)


def _are_tokens_cut_otherwise(target: Path, golden: Path) -> bool:
    """Return whether two runs cut one batch into other micro-batches whose rows can be found in both."""
    folders = recording_of(target), recording_of(golden)
    try:
        batches = cut_otherwise(*folders)
        if batches is None:
            return False
        from pytest_msprobe.extensions.inference.passes import read_passes

        passes = [read_passes(folder, model_names(()), batches) for folder in folders]
    except DumpError:
        # What is wrong with a dump is reported where it is opened.
        return False
    return all(one.layout is not None for run in passes for one in run)


def cut_otherwise(target: Path, golden: Path) -> MicroBatches | None:
    """Return how two recordings of one process each cut one batch into other micro-batches; None where they do not.

    Where both have equally many steps, the first of each is looked at. Raises DumpError where a dump cannot be used.
    """
    dumps = [[folder] if folder.is_file() else find_dumps(folder) for folder in (target, golden)]
    if any(len({step_rank(path).rank for path in paths}) > 1 for paths in dumps):
        return None
    if len(dumps[0]) == len(dumps[1]):
        dumps = [paths[:1] for paths in dumps]
    try:
        if are_called_alike(*dumps):
            return None
    except (OSError, ValueError):
        return None
    return micro_batches(*([read_dump(path) for path in paths] for paths in dumps))


def open_pair(targets: Sequence[Path], options: CompareOptions, inherited: float) -> InferencePair:
    """Open both runs; the target goes by the first dump of its recording.

    Raises OptionError where there are several targets, DumpError where a run cannot be used.
    """
    from pytest_msprobe.extensions.inference.inference_pair import InferencePair
    from pytest_msprobe.extensions.inference.profile import is_kept

    folders = dict.fromkeys(map(recording_of, targets))
    if len(folders) > 1:
        raise OptionError(
            f"{MATCH} inference compares one recording, not {len(folders)}", remedy="pass one --msprobe-compare"
        )
    (target,) = folders
    inference = options.part(InferenceOptions)
    golden, profile = recording_of(options.golden), inference.profile
    return InferencePair(
        target,
        golden,
        model_names(inference.names),
        sizes=ModelSizes() if inference.config is None else read_sizes(inference.config),
        inherited=inherited,
        clip=inference.clip,
        profile=profile if profile is None or is_kept(profile) else recording_of(profile),
        batches=None if is_engine(target) or is_engine(golden) else cut_otherwise(target, golden),
    )


def read_sizes(path: Path) -> ModelSizes:
    """Return the sizes in a model's configuration. Raises OptionError where it is none."""
    try:
        config = decode_json(read_regular(path))
    except (OSError, JsonError) as error:
        raise OptionError(f"{MODEL_CONFIG}: {error}", file=path) from None
    if not isinstance(config, dict):
        raise OptionError(f"{MODEL_CONFIG}: not a JSON object", file=path, remedy="pass the config.json of the model")
    return sizes_of_config(config)


class InferenceComparison:
    """A comparison of a training with an engine, opened."""

    def __init__(self, pair: InferencePair) -> None:
        self._pair = pair

    def header(self, config: pytest.Config) -> list[str]:
        """Return what is compared with what."""
        pair = self._pair
        target, golden = (display_path(config, path) for path in (pair.target_path, pair.golden_path))
        passes = [
            counted(len(run.passes), "forward pass").replace("passs", "passes") for run in (pair.target, pair.golden)
        ]
        batches = pair.batches
        why = "as engine and trainer" if batches is None else f"as one step in other micro-batches ({MATCH} inference)"
        profile = pair.profile_path
        return [
            f"msprobe: comparing {target} ({passes[0]}) with {golden} ({passes[1]}) token by token, {why}",
            f"msprobe: {counted(len(pair.pairs), 'token')} of {counted(len(pair.pairs.requests), 'request')} in both "
            "runs",
            *([f"msprobe: limits by the errors of {display_path(config, profile)}"] if profile is not None else []),
        ]

    def reporters(self, calls: ComparedCalls, compare: CompareOptions, options: Options) -> Mapping[str, object]:
        """Return the plugins that report, by name."""
        from pytest_msprobe.extensions.inference.inference_reports import inference_reporters

        return inference_reporters(self._pair, calls, compare, options)

    def other_files(self) -> Mapping[str, Path]:
        """Return all dumps that are read besides the one that the run goes by."""
        from pytest_msprobe.extensions.inference.profile import is_kept

        target, golden = find_dumps(self._pair.target_path), find_dumps(self._pair.golden_path)
        path = self._pair.profile_path
        profile = [] if path is None else [path] if is_kept(path) else find_dumps(path)
        sides = {"golden": golden, "profile": profile}
        others = {f"{side} {path}": path for side, paths in sides.items() for path in paths}
        return {f"target {path}": path for path in target[1:]} | others

    def items(self, file: pytest.File, dump: Dump) -> Iterator[DumpItem]:
        """Yield the items in the order of the forward pass."""
        return _inference_items(file, dump, self._pair)


class InferenceSkip(BaseSkipReason):
    """Reason why a value is not compared."""

    UNALIGNED = "its rows cannot be compared token by token"


class InferenceItem(DumpItem):
    """The comparison of one value: what a module returns or is given, for every token that both runs computed."""

    announces_warnings = False
    # Nothing here runs on a device or takes more memory than a few tensors.
    is_isolated = False
    attributes_made_again = frozenset({"msprobe", "msprobe_place", "msprobe_cause", "msprobe_rows"})
    #: What came of it, until that is reported.
    call: ComparedCall | None = None

    __slots__ = ("pair",)

    def __init__(self, *, pair: InferencePair, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pair = pair

    def judge(self) -> DirectionResult:
        """Compare both runs."""
        self.call = self.pair.compare(self.name)
        return result_of(self.call, self.pair)

    def mark_names(self) -> list[str]:
        """Return none: an item is no record."""
        return []

    def records(self) -> list[bytes]:
        """Return none: an item is no record."""
        return []

    def properties(self) -> list[tuple[str, str]]:
        """Return whether a difference begins here."""
        return [("msprobe.cause", self.call.cause)] if self.call and self.call.cause else []

    def attach(self, report: Any) -> None:
        """Attach the rows to the report, next to the verdict."""
        super().attach(report)
        if self.call is not None and self.result is not None:
            report.msprobe_place = (self.pair.index, self.call.order)
            report.msprobe_cause = self.call.cause
            report.msprobe_rows = encode(self.call)
            self.call = None


def _inference_items(file: pytest.File, dump: Dump, pair: InferencePair) -> Iterator[InferenceItem]:
    """Yield the items in the order of the forward pass."""
    for name in pair.orders:
        yield InferenceItem.from_parent(file, name=name, dump=dump, pair=pair)


def result_of(call: ComparedCall, pair: InferencePair) -> DirectionResult:
    """Return what came of a value as every report of a run understands it."""
    if call.outcome == "skip":
        reason = f"{InferenceSkip.UNALIGNED.value}: {call.reason}"
        return DirectionResult(call.record, Verdict("skip", "", reason), skip=InferenceSkip.UNALIGNED)
    differing = [row for row in call.rows if row.differs]
    if not differing:
        return DirectionResult(call.record, Verdict(call.outcome, STANDARD, call.reason))
    outputs = [_output(row) for row in differing]
    deciding = next(number for number, row in enumerate(differing) if row.outcome == call.outcome)
    outputs[deciding] = _output(differing[deciding], _hint(call, differing[deciding], pair))
    return DirectionResult(call.record, outputs[deciding].verdict, tuple(outputs))


def _hint(call: ComparedCall, row: Row, pair: InferencePair) -> str:
    if row.group == "parameters":
        return "the runs hold other weights: synchronise them, and compare again"
    if call.cause == "inherited" and (first := pair.first_culprit):
        return f"it follows from what differs before it; first culprit: {first}" if first != call.record else ""
    return pair.advice(call.record)


def _output(row: Row, hint: str = "") -> OutputResult:
    target, golden = row.target, row.golden
    text = "; ".join(row.messages)
    metrics = {name: value for name, value in row.metrics.items() if not math.isnan(value)}
    return OutputResult(
        row.place,
        Verdict(
            row.outcome,
            STANDARD,
            "\n".join(filter(None, [text, hint])),
            metrics,
            margin=row.metrics.get(SCALED_ERROR, math.inf) / (row.metrics.get("limit") or 1.0),
        ),
        target.dtype if target else "",
        golden.dtype if golden else "",
        target.shape if target else (),
    )
