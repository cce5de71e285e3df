"""Tables of a dispatch: a row per operator, a row per output, and tensors as ``.npy``."""

from __future__ import annotations

import csv
import datetime
import errno
import io
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.recording.vectored_write import write_npy
from msprobe_standards.tensor_layouts import as_array
from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.errors import FolderError
from pytest_msprobe.extensions.live_checks.dispatch.options import DispatchOptions
from pytest_msprobe.extensions.live_checks.observed_call import Stack
from pytest_msprobe.reports.csv import STATUS
from pytest_msprobe.results.result import DirectionResult, OutputResult

RESULT_HEADER = ("API name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS_HEADER = (
    *("Npu Name", "Bench Dtype", "NPU Dtype", "Shape", "error_balance", "max_abs_diff", "max_abs_idx"),
    *("max_rel_diff", "max_rel_idx", "eb_thd", "error_thd", "Status", "Message"),
)
_KNOWN_TO_NUMPY = (torch.float16, torch.float32, torch.float64)
_MEASURED = DETAILS_HEADER[4:9]

_log = logging.getLogger("pytest_msprobe")


class DispatchTables:
    """The folder of one dispatch. Each operator's rows are in the files when it has been judged.

    Raises FolderError where the folder cannot be made.
    """

    def __init__(self, options: DispatchOptions, rank: int) -> None:
        self.counts: Counter[str] = Counter()
        self.failure: FolderError | None = None
        self._options = options
        self._numbers: Counter[str] = Counter()
        moment = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
        try:
            self.folder = _new_folder(options.folder, f"msprobe{options.tagged}_rank{rank}_{moment}")
            for side in ("cpu", "npu"):
                (self.folder / side).mkdir()
            self._results = self._table(f"accuracy_checking_result_{moment}.csv", RESULT_HEADER)
            self._details = self._table(f"accuracy_checking_details_{moment}.csv", DETAILS_HEADER)
        except OSError as error:
            raise FolderError(f"cannot be written: {error.strerror}", file=options.folder) from None

    def add(
        self, result: DirectionResult, replay: Replay, forward: bytes, backward: bytes | None, stack: Stack
    ) -> None:
        """Write what came of one operator."""
        operator = operation(parse_api_name(result.record).api)
        self._numbers[operator] += 1
        name = f"{operator}_{self._numbers[operator]}"
        self.counts[result.outcome] += 1
        if self._options.debug:
            _log.info("%s: %s in %.3f s", name, result.outcome, result.seconds)
        try:
            is_single = isinstance(replay.trial.target.output, torch.Tensor)
            for output in result.outputs:
                place = "output" if is_single and output.path == "output.0" else output.path
                _write(self._details, _details_row(f"{name}_{place}", output))
            _write(self._results, (name, STATUS[result.verdict.outcome], STATUS["skip"], result.verdict.reason))
            if self._options.dumps(operator, failed=result.verdict.outcome == "fail"):
                self._save(name, replay, is_single)
        except OSError as error:
            self.failure = FolderError(f"cannot be written: {error.strerror}", file=self.folder)
            _log.error("dispatch stopped: %s", self.failure)

    def close(self) -> None:
        """Close the tables."""
        self._results.close()
        self._details.close()

    def _table(self, name: str, header: Iterable[str]) -> IO[bytes]:
        # What a full disk refuses must not wait in a buffer until the file is closed.
        file = (self.folder / name).open("xb", buffering=0)
        _write(file, header)
        return file

    def _save(self, name: str, replay: Replay, is_single: bool) -> None:
        for path, tensor in replay.trial.subject.arguments.tensors():
            kind, _, place = path.partition(".")
            self._write_tensor("npu", f"{name}_input{'.' if kind == 'args' else '_'}{place}", tensor)
        trees = produced(replay.trial, "forward", ("target", "golden"))
        for side, tree in (("npu", trees.get("target")), ("cpu", trees.get("golden"))):
            for path, tensor in tensors_with_paths(tree):
                place = "output" if is_single and path == "output.0" else path
                self._write_tensor(side, f"{name}_{place}", tensor)

    def _write_tensor(self, side: str, name: str, tensor: torch.Tensor) -> None:
        values = tensor.detach().resolve_conj().resolve_neg()
        if values.is_floating_point() and values.dtype not in _KNOWN_TO_NUMPY:
            values = values.float()
        with (self.folder / side / f"{name}.npy").open("wb") as file:
            write_npy(file, as_array(values))


def _details_row(name: str, output: OutputResult) -> Iterator[Any]:
    verdict, measured = output.verdict, output.measured
    yield from (name, output.golden_dtype, output.target_dtype, tuple(output.shape))
    yield from (measured.get(column, "") for column in _MEASURED)
    yield from (verdict.limits.get(limit, "") for limit in ("error_balance", "max_abs_diff"))
    yield from (STATUS[verdict.outcome], verdict.reason)


def _write(file: IO[bytes], row: Iterable[Any]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerow(row)
    line = text.getvalue().encode("utf-8", "backslashreplace")
    if file.write(line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _new_folder(parent: Path, name: str) -> Path:
    number = 0
    while True:
        folder = parent / (f"{name}_{number}" if number else name)
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            # Two of them in one second; none writes into another's.
            number += 1
        else:
            return folder
