"""Recorded results and metrics of a baseline, read when a verdict depends on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from msprobe_hooks.json_decoding import JsonError, decode_json
from msprobe_standards import Bounds, Metrics, RecordedOutput, Standard, measure
from pytest_msprobe.engine.replay.trials.baseline_protocol import Prepare
from pytest_msprobe.modes.check.baselines.tensor_folder import (
    METADATA,
    Content,
    OutputRow,
    RecordRow,
    digest_of,
    file_name,
)
from pytest_msprobe.results.outcomes import Skip
from pytest_msprobe.results.result import OutputResult, as_missing_baseline
from pytest_msprobe.storage.limits import StoredTensor, TensorFileError

# Golden results of the same inputs agree this well from one machine to another, those of others seldom do.
_SAME_SCALE = 1e-3


def recorded_output(row: OutputRow) -> RecordedOutput | None:
    """Return a row's numbers; None where it has none, or is of a dtype that this torch does not have."""
    dtype = torch_dtype(row.dtype)
    numel: int = math.prod(row.shape)
    if dtype is None or (numel and not row.metrics):
        return None
    try:
        bounds = Bounds(**row.own_bounds) if row.own_bounds else None
    except TypeError:
        # Lines that this version does not draw: what they counted serves no standard here.
        bounds = None
    # A product of many sizes has more digits than a float; as a number of elements all such are alike.
    return RecordedOutput(dtype, min(numel, 2**53), row.metrics, bounds, row.own_metrics)


def baseline_metrics(
    row: OutputRow | None,
    standard: Standard,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    scale: Callable[[], float | None],
) -> Metrics | str:
    """Return what a standard reads of a baseline's row for an output, or why the row does not serve it.

    ``scale`` gives the mean magnitude of golden here: where the row's is another, so were the inputs.
    """
    if row is None:
        return "there is no row"
    recorded = recorded_output(row)
    if recorded is None:
        return f"its row has no numbers: {row.reason}" if row.reason else "its row has no numbers"
    if (recorded.dtype, row.shape) != (dtype, shape):
        return f"its row is for {row.dtype} {row.shape}"
    metrics = recorded.metrics_for(standard)
    if metrics is None:
        return f"its row lacks numbers of standard {standard.name}; record it under the same policy"
    return other_inputs(row, scale) or metrics


def other_inputs(row: OutputRow, scale: Callable[[], float | None]) -> str:
    """Return how a row's golden result shows that its inputs were others than here; empty where it does not."""
    there, here = row.metrics.get("scale"), scale()
    if there is None or here is None or math.isclose(there, here, rel_tol=_SAME_SCALE):
        return ""
    return f"its inputs differ: the mean magnitude of golden was {there:.6g} there and is {here:.6g} here"


def torch_dtype(name: str) -> torch.dtype | None:
    """Return the dtype that is spelled ``torch.float32`` and the like, None for anything else."""
    package, _, attribute = name.partition(".")
    dtype = getattr(torch, attribute, None) if package == "torch" else None
    return dtype if isinstance(dtype, torch.dtype) else None


class RecordedResult:
    """Baseline of one record: its row, and its tensors where it has them.

    ``problem`` says why tensors that the row names were not used; the row's numbers then stand in for them.
    """

    def __init__(self, row: RecordRow, folder: Path) -> None:
        self.row = row
        self.problem = ""
        self._path = folder / file_name(row.record, row.tensors)

    def for_outputs(
        self, targets: Mapping[str, torch.Tensor], goldens: Mapping[str, torch.Tensor], prepare: Prepare
    ) -> RecordedBaseline:
        """Return what looks up this record's tensors or numbers for outputs by path."""
        return RecordedBaseline(self, targets, goldens, prepare)

    def tensor(self, path: str, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor | None:
        """Return the output or gradient at a path; None where there is none of this dtype and shape to be had."""
        if not self.row.tensors:
            return None
        stored = self._stored.get(path)
        if stored is None:
            self.problem = self.problem or f"{self._path}: no {path}"
            return None
        if (stored.dtype, stored.shape) != (str(dtype), shape):
            self.problem = f"{self._path}: {path} is {stored.dtype} {stored.shape}, here {dtype} {shape}"
            return None
        from pytest_msprobe.storage.tensors import read_tensor

        try:
            return read_tensor(self._path, path, stored)
        except (TensorFileError, Skip) as error:
            self.problem = str(error)
            return None

    @functools.cached_property
    def _stored(self) -> dict[str, StoredTensor]:
        try:
            return self._read()
        except OSError as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        except TensorFileError as error:
            why = f"{error}; {error.remedy}" if error.remedy else str(error)
        except JsonError as error:
            why = str(error)
        self.problem = f"{self._path}: {why}"
        return {}

    def _read(self) -> dict[str, StoredTensor]:
        if self._path.resolve().parent != self._path.parent.resolve():
            raise TensorFileError("leads out of its folder")
        if digest_of(self._path) != self.row.tensors:
            raise TensorFileError("is not what the baseline's run wrote: damaged, or changed since")
        from pytest_msprobe.storage.tensors import read_metadata

        metadata = read_metadata(self._path)
        if METADATA not in metadata:
            raise TensorFileError("holds no tensors of a baseline")
        content = decode_json(metadata[METADATA].encode(), Content)
        if content.record != self.row.record:
            raise TensorFileError(f"is about {content.record!r}")
        return content.tensors


class RecordedBaseline:
    """Looks up the tensors or numbers of one record, for `judge_tree`; it is asked where a verdict depends on them.

    ``targets`` and ``goldens`` are the outputs by path; ``prepare`` does to a tensor at a path what was done to those.
    What cannot be found is remembered, with the reason.
    """

    def __init__(
        self,
        recorded: RecordedResult,
        targets: Mapping[str, torch.Tensor],
        goldens: Mapping[str, torch.Tensor],
        prepare: Prepare,
    ) -> None:
        self._recorded = recorded
        self._targets = targets
        self._goldens = goldens
        self._prepare = prepare
        self._missing: dict[str, str] = {}

    def __call__(self, path: str, standard: Standard) -> Metrics | torch.Tensor | None:
        """Return the baseline's output at a path, else what a standard reads of it; None where neither is there."""
        output = self._find(path, standard)
        if isinstance(output, str):
            self._missing[path] = output
            return None
        return output

    def without_missing(self, result: OutputResult) -> OutputResult:
        """Return a result without the row that it wanted.

        A failure stays one, since the same-dtype CPU result does not explain it either. Anything else is no verdict.
        """
        why = self._missing.get(result.path)
        return result if why is None else as_missing_baseline(result, f"judged by the same-dtype CPU result, as {why}")

    def _find(self, path: str, standard: Standard) -> Metrics | torch.Tensor | str:
        whole = self._recorded.row
        if not whole.outputs and whole.reason:
            return f"the recorded run has no numbers: {whole.reason}"
        target, golden = self._targets[path], self._goldens[path]
        row = whole.output(path, list(self._targets).index(path))

        def scale() -> float | None:
            return measure(target, golden, only={"scale"}).get("scale")

        if row is not None:
            tensor = self._recorded.tensor(path, target.dtype, tuple(target.shape))
            if tensor is not None and not other_inputs(row, scale):
                return self._prepare(path, tensor)
        return baseline_metrics(row, standard, target.dtype, tuple(target.shape), scale)
