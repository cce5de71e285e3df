"""A comparison with an engine as a run of pytest: its dumps, header, reporters and items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.dump.paths.recording import find_dumps, rank_in_recording, step_rank
from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_hooks.messages import counted
from msprobe_hooks.regular_files import read_regular
from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions.inference.options import MATCH, InferenceOptions, has_tensors, is_engine
from pytest_msprobe.extensions.model_names.fused_parts import ModelSizes, sizes_of_config
from pytest_msprobe.extensions.model_names.model_names import model_names
from pytest_msprobe.run.rerun_command import display_path
from pytest_msprobe.run.shared_options import MODEL_CONFIG

# Runs that compare calls do not load what compares tokens, which needs torch.
if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.extensions.inference.inference_pair import InferencePair
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.rows import ComparedCalls
    from pytest_msprobe.run.item import DumpItem
    from pytest_msprobe.run.options import Options


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
    """Return whether a run compares a training with an engine: as asked for, else by the modules of both runs.

    Raises OptionError for an option that only a comparison of calls understands.
    """
    match = options.part(InferenceOptions).match
    if match == "calls" or (match is None and options.of_calls):
        return False
    if match is None:
        are_recorded = has_tensors(target) and has_tensors(options.golden)
        return are_recorded and is_engine(target) != is_engine(options.golden)
    if options.of_calls:
        raise OptionError(f"{options.of_calls} does not work with {MATCH} inference", remedy="remove one of them")
    return True


def open_pair(targets: Sequence[Path], options: CompareOptions, inherited: float) -> InferencePair:
    """Open both runs; the target goes by the first dump of its recording.

    Raises OptionError where there are several targets, DumpError where a run cannot be used.
    """
    from pytest_msprobe.extensions.inference.inference_pair import InferencePair

    folders = dict.fromkeys(map(recording_of, targets))
    if len(folders) > 1:
        raise OptionError(
            f"{MATCH} inference compares one recording, not {len(folders)}", remedy="pass one --msprobe-compare"
        )
    (target,) = folders
    inference = options.part(InferenceOptions)
    return InferencePair(
        target,
        recording_of(options.golden),
        model_names(inference.names),
        sizes=ModelSizes() if inference.config is None else read_sizes(inference.config),
        inherited=inherited,
        clip=inference.clip,
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
        return [
            f"msprobe: comparing {target} ({passes[0]}) with {golden} ({passes[1]}) token by token, as engine and "
            "trainer",
            f"msprobe: {counted(len(pair.pairs), 'token')} of {counted(len(pair.pairs.requests), 'request')} in both "
            "runs",
        ]

    def reporters(self, calls: ComparedCalls, compare: CompareOptions, options: Options) -> Mapping[str, object]:
        """Return the plugins that report, by name."""
        from pytest_msprobe.extensions.inference.inference_reports import inference_reporters

        return inference_reporters(self._pair, calls, compare, options)

    def other_files(self) -> Mapping[str, Path]:
        """Return all dumps that are read besides the one that the run goes by."""
        target, golden = find_dumps(self._pair.target_path), find_dumps(self._pair.golden_path)
        return {f"target {path}": path for path in target[1:]} | {f"golden {path}": path for path in golden}

    def items(self, file: pytest.File, dump: Dump) -> Iterator[DumpItem]:
        """Yield the items in the order of the forward pass."""
        from pytest_msprobe.extensions.inference.inference_items import inference_items

        return inference_items(file, dump, self._pair)
