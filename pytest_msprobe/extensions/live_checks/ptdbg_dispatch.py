"""``PtdbgDispatch``: msprobe's context manager for comparing operators with the CPU while they run, and its tables.

Facts: the online dispatch of mindstudio-probe 1.2.2. Other than there, the limits are those of the result's own dtype,
errors below magnitude 1 count, a bias of either sign fails, and inf and NaN must be where golden has them.
"""

from __future__ import annotations

import csv
import datetime
import errno
import io
import logging
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, get_args

import torch

from msprobe_hooks.dump.names import parse_api_name
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.messages import shown
from msprobe_hooks.recording.session import observing
from msprobe_hooks.recording.validators import flag, one_of
from msprobe_hooks.recording.vectored_write import write_npy
from msprobe_hooks.torch.session import Operators, process_rank
from msprobe_standards import Policy, Verdict
from msprobe_standards.fixed_limits import NotCompared
from msprobe_standards.tensor_layouts import as_array
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.call import operation
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.judging.directions import judge_forward
from pytest_msprobe.engine.replay.judging.run_outputs import produced
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.engine.values.pytree import tensors_with_paths
from pytest_msprobe.errors import FolderError
from pytest_msprobe.extensions.live_checks.budget import Budget
from pytest_msprobe.extensions.live_checks.judge import Judge
from pytest_msprobe.extensions.live_checks.observed_call import Stack, one_at_a_time
from pytest_msprobe.extensions.live_checks.options import LiveOptions
from pytest_msprobe.extensions.live_checks.scheduling import Selection
from pytest_msprobe.extensions.live_checks.session import TorchLiveRecorder
from pytest_msprobe.reports.csv import STATUS
from pytest_msprobe.results.result import DirectionResult, OutputResult

DumpMode = Literal["all", "list", "auto", "OFF"]

_NAME = re.compile(r"[A-Za-z0-9_-]+")
_MOST_NAMES = 1_000_000

_log = logging.getLogger("pytest_msprobe")


@dataclass(frozen=True, slots=True)
class DispatchOptions:
    """Checked options. ``operators`` are those of ``api_list`` that torch has."""

    mode: DumpMode
    operators: frozenset[str]
    debug: bool
    folder: Path
    tag: str | None

    @property
    def tagged(self) -> str:
        """The tag as a part of a folder's name."""
        return f"_{self.tag}" if self.tag else ""

    def dumps(self, operator: str, *, failed: bool) -> bool:
        """Return whether the tensors of a call are written."""
        return self.mode == "all" or (self.mode == "auto" and failed) or operator in self.operators


def checked(
    dump_mode: object, api_list: object, debug: object, dump_path: object, tag: object, process_num: object
) -> DispatchOptions:
    """Check the arguments of a dispatch. Raises ConfigError that names what is wrong and what is allowed."""
    one_of(get_args(DumpMode))("dump_mode", dump_mode)
    flag("debug", debug)
    if not isinstance(dump_path, (str, Path)) or not Path(dump_path).is_dir():
        raise ConfigError("dump_path", dump_path, "an existing folder")
    if tag is not None and not (isinstance(tag, str) and _NAME.fullmatch(tag)):
        raise ConfigError("tag", tag, "letters, digits, _ and -")
    if type(process_num) is not int or process_num < 0:
        raise ConfigError("process_num", process_num, "a whole number from 0")
    if process_num:
        _log.warning("process_num is %d: operators are judged in this process, as they run", process_num)
    names = _operators(api_list) if dump_mode == "list" else frozenset()
    return DispatchOptions(dump_mode, names, debug, Path(dump_path), tag)  # type: ignore[arg-type]


def _operators(api_list: object) -> frozenset[str]:
    if not isinstance(api_list, Sequence) or isinstance(api_list, str) or len(api_list) > _MOST_NAMES:
        raise ConfigError("api_list", api_list, "a list of names of ATen operators, which dump_mode list needs")
    for name in api_list:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ConfigError("api_list", name, "names of letters, digits, _ and -")
    unknown = sorted(name for name in set(api_list) if not hasattr(torch.ops.aten, name))
    if unknown:
        _log.warning("api_list: torch.ops.aten has no %s", shown(unknown))
    return frozenset(api_list) - frozenset(unknown)


NAME = "single_benchmark"

# mindstudio-probe 1.2.2's limits of its high-precision kind, which is the one that its dispatch uses.
_MOST_ERROR = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_MOST_BALANCE = {torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
_OTHERWISE = 2.0**-14
_EPSILON = 1.2e-7  # what it adds to what it divides by

RESULT_HEADER = ("API name", "Forward Test Success", "Backward Test Success", "Message")
DETAILS_HEADER = (
    *("Npu Name", "Bench Dtype", "NPU Dtype", "Shape", "error_balance", "max_abs_diff", "max_abs_idx"),
    *("max_rel_diff", "max_rel_idx", "eb_thd", "error_thd", "Status", "Message"),
)
_KNOWN_TO_NUMPY = (torch.float16, torch.float32, torch.float64)
_MEASURED = DETAILS_HEADER[4:9]


class PtdbgDispatch:
    """Compares every operator inside its ``with``, forward or backward, with the same operator on the CPU.

    Args:
        dump_mode: Whose tensors are written: of ``"all"`` operators, of those in ``api_list`` (``"list"``), of those
            that fail (``"auto"``), of none (``"OFF"``).
        api_list: Names of ATen operators, for the mode ``"list"``.
        debug: Whether each operator is logged.
        dump_path: An existing folder, below which one is made for each ``with``.
        tag: A part of that folder's name.
        process_num: Accepted as by msprobe; operators are judged in this process.

    Raises:
        ConfigError: An argument cannot be used.
    """

    def __init__(
        self,
        dump_mode: str = "OFF",
        api_list: Sequence[str] | None = None,
        debug: bool = False,
        dump_path: str | Path | None = None,
        tag: str | None = None,
        process_num: int = 0,
    ) -> None:
        self._options = checked(dump_mode, api_list, debug, dump_path, tag, process_num)

    @property
    def folder(self) -> Path:
        """The folder that was written last."""
        return self._tables.folder

    def __enter__(self) -> None:
        """Compare from here on. Raises FolderError where nothing can be written, ConfigError inside a live check."""
        with ExitStack() as opening:
            opening.enter_context(one_at_a_time())
            self._tables = tables = _DispatchTables(self._options, process_rank() or 0)
            opening.callback(tables.close)
            self._recorder = recorder = _recorder(tables)
            recorder.start(process_rank())
            opening.callback(recorder.close)
            opening.enter_context(observing([Operators(recorder)]))
            self._open = opening.pop_all()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Complete the tables. Raises FolderError where they were cut short and the code inside raised nothing."""
        self._open.close()
        tables = self._tables
        _log.info("%s: %s", tables.folder, ", ".join(f"{count} {outcome}" for outcome, count in tables.counts.items()))
        for where, count in self._recorder.summary.errors.items():
            _log.warning("not compared: %s (%d times)", where, count)
        if error is None and tables.failure is not None:
            raise tables.failure


def _recorder(tables: _DispatchTables) -> TorchLiveRecorder:
    judge, budget = (
        Judge(ReplayConfig(CpuDevice(), Policy.load("default"), TorchFramework(), memory="given"), by=_judge_singly),
        Budget(None),
    )
    everything = Selection(1.0, None, budget, 0)
    # Operators have no gradients to wait for.
    return TorchLiveRecorder(LiveOptions(level="aten").recording(), judge, tables, everything, budget, lambda: None, 0)


def _judge_singly(trial: Trial) -> list[OutputResult]:
    """Judge what a call returned and changed against golden alone; what it drew, by what that must be like.

    Raises Skip as the golden run does.
    """
    if trial.randomness is not None:
        return judge_forward(trial, lambda *_: NotCompared())
    # Golden first: what no one can compute has no trees.
    _ = trial.golden
    trees = produced(trial, "forward", ("target", "golden"))
    targets, goldens = (dict(tensors_with_paths(trees[side])) for side in ("target", "golden"))
    return [_judged(path, targets.get(path), golden) for path, golden in goldens.items()]


def _judged(path: str, target: torch.Tensor | None, golden: torch.Tensor) -> OutputResult:
    if target is None:
        return OutputResult(path, _failed("the output is missing"), golden_dtype=str(golden.dtype))
    described = {"target_dtype": str(target.dtype), "golden_dtype": str(golden.dtype), "shape": tuple(target.shape)}
    if target.shape != golden.shape:
        verdict = _failed(f"the shape is {tuple(target.shape)}, golden's is {tuple(golden.shape)}")
        return OutputResult(path, verdict, **described)  # type: ignore[arg-type]
    if not (target.is_floating_point() or target.is_complex()):
        wrong = int((target != golden.to(target.dtype)).sum())
        verdict = _failed(f"{wrong} of {target.numel()} elements differ") if wrong else Verdict("pass", NAME)
        return OutputResult(path, verdict, **described)  # type: ignore[arg-type]
    numbers = measure(_parts(target), _parts(golden), target.dtype.to_real())
    return OutputResult(path, _decided(numbers, target.dtype), measured=numbers, **described)  # type: ignore[arg-type]


def measure(target: torch.Tensor, golden: torch.Tensor, dtype: torch.dtype) -> dict[str, float]:
    """Return the numbers of one output of a real ``dtype``, given with golden's as flat float64.

    ``max_abs_idx`` and ``max_rel_idx`` are places in the flat output, -1 where there is no such element.
    """
    error, size = target - golden, golden.abs()
    mismatched, count = 0, target.numel()
    # What is finite, and no larger than the dtype holds, is so on both sides. Mostly that is all,
    # and one pass shows it.
    if count and not (error.isfinite().all() and size.max() <= torch.finfo(dtype).max):
        rounded = golden.to(dtype).double()
        finite = target.isfinite() & rounded.isfinite()
        same = (target == rounded) | (target.isnan() & rounded.isnan())
        mismatched, count = int((~finite & ~same).sum()), int(finite.sum())
        error, size = torch.where(finite, error, 0.0), torch.where(finite, size, math.nan)
    is_large = size >= 1
    scaled = torch.where(is_large, error / (size + _EPSILON), error)
    magnitude = scaled.abs()
    abs_idx, abs_diff = _greatest(magnitude, size < 1)
    rel_idx, rel_diff = _greatest(magnitude, is_large)
    return {
        "error_balance": float(scaled.sum()) / count if count else 0.0,
        "max_abs_diff": abs_diff,
        "max_abs_idx": abs_idx,
        "max_rel_diff": rel_diff,
        "max_rel_idx": rel_idx,
        "nonfinite_mismatch": mismatched,
    }


def _greatest(errors: torch.Tensor, mask: torch.Tensor) -> tuple[int, float]:
    if not mask.any():
        return -1, 0.0
    value, place = torch.where(mask, errors, -1.0).max(0)
    return int(place), float(value)


def _decided(numbers: Mapping[str, float], dtype: torch.dtype) -> Verdict:
    error = _MOST_ERROR.get(dtype, _OTHERWISE)
    limits = {"error_balance": _MOST_BALANCE.get(dtype, _OTHERWISE), "max_abs_diff": error, "max_rel_diff": error}
    shown = {name: numbers[name] for name in limits}
    if numbers["nonfinite_mismatch"]:
        reason = f"{numbers['nonfinite_mismatch']} elements are inf or NaN where golden is not, or the other way round"
        return Verdict("fail", NAME, reason, shown, limits, math.inf)
    ratios = {name: abs(value) / limits[name] for name, value in shown.items()}
    over = [f"{name} is {shown[name]:.4g}, allowed {limits[name]:.4g}" for name in limits if ratios[name] > 1]
    return Verdict("fail" if over else "pass", NAME, "; ".join(over), shown, limits, max(ratios.values()))


def _parts(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements as flat float64; a complex number is two."""
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return real.reshape(-1).double()


def _failed(reason: str) -> Verdict:
    return Verdict("fail", NAME, reason, margin=math.inf)


class _DispatchTables:
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
