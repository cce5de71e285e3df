"""The gradient probe of any framework: its configuration, the steps that are written, and the files of a rank."""

from __future__ import annotations

import csv
import io
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, Final

from msprobe_hooks.dump.writer import make_folder
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from msprobe_hooks.extensions.monitor.grad_probe.sign_maps import SignMap
from msprobe_hooks.messages import counted, did_you_mean, listed
from msprobe_hooks.recording import validators as checks
from msprobe_hooks.recording.safety_net import abandon_in_children
from msprobe_hooks.recording.vectored_write import write_npy

_log = logging.getLogger("msprobe_hooks")

_FILE_MODE = 0o640

TASK: Final = "grad_probe"
LEVELS: Final = ("L0", "L1", "L2")
SIGN_FORMATS: Final = ("bool", "packed")

_INT64 = 2**63

_COMMON: Mapping[str, Any] = {"dump_path": checks.path, "rank": checks.numbers, "step": checks.numbers}


class GradientProbe(ABC):
    """Writes gradients each time an optimizer is about to use them.

    A framework says how optimizers are watched. Their calls are counted apart. The training never fails for the probe's
    sake: what it cannot read or write is reported once.
    """

    def __init__(self, settings: ProbeSettings) -> None:
        self.settings = settings
        self._first_step = 0
        self._next_step: dict[str, int] = {}
        self._files: ProbeFiles | None = None
        self._written: set[int] = set()
        self._warned: set[str] = set()
        self._is_abandoned = False
        abandon_in_children(self)

    @abstractmethod
    def monitor(self, watched: Any, optimizer: Any = None) -> None:
        """Write gradients from the next optimizer step on: of PyTorch's model, of MindSpore's optimizer.

        ``optimizer`` names the one whose calls count where it holds copies of the model's parameters, not themselves.
        Raises ConfigError for anything else.
        """

    @abstractmethod
    def remove_hooks(self) -> None:
        """Watch no optimizer any more."""

    @abstractmethod
    def rank(self) -> int | None:
        """Return this process's rank, None where there is no process group."""

    @abstractmethod
    def parameters(self) -> Iterable[str]:
        """Return the names of the trainable parameters that are watched once an optimizer steps them."""

    @abstractmethod
    def why_no_step(self) -> str:
        """Return why no optimizer step was counted."""

    def begin_at(self, step: int) -> None:
        """Set the number of the next step of each optimizer."""
        self._first_step = step
        self._next_step = dict.fromkeys(self._next_step, step)

    def record_into(self, dump_path: Path) -> None:
        """Write into another folder. Raises ConfigError where there are gradients in the first one."""
        if self._files is not None:
            allowed = f"{self.settings.dump_path}, where gradients are written already"
            raise ConfigError("dump_path", str(dump_path), allowed)
        self.settings = replace(self.settings, dump_path=dump_path)

    def abandon(self) -> None:
        """Stop looking, in a forked child: the files are the parent's."""
        self._is_abandoned = True
        self.remove_hooks()

    def close(self) -> str:
        """Stop looking; return what was written as a sentence, nothing in a forked child."""
        self.remove_hooks()
        if self._is_abandoned:
            return ""
        if self._files is not None and self._written:
            missing = [name for name in self.parameters() if self.is_listed(name) and name not in self._next_step]
            without = f", without those of {listed(missing)}, which no optimizer steps" if missing else ""
            steps = counted(len(self._written), "optimizer step")
            return f"gradients of {steps} are in {self._files.folder}{without}"
        if self._warned:
            return "no gradients were written: see the warnings above"
        unwanted = "this rank or these steps are not configured"
        return f"no gradients were written: {unwanted if self._next_step else self.why_no_step()}"

    def count(self, parameters: Collection[str]) -> int:
        """Count a call of the optimizer of these parameters; return the number of this step."""
        step = max(self._next_step.get(name, self._first_step) for name in parameters)
        self._next_step.update(dict.fromkeys(parameters, step + 1))
        return step

    def is_wanted(self, step: int) -> bool:
        """Return whether this step of this rank is to be written."""
        rank = self.rank()
        if rank is not None and self.settings.rank is not None and rank not in self.settings.rank:
            return False
        return self.settings.step is None or step in self.settings.step

    def is_listed(self, parameter: str) -> bool:
        """Return whether a parameter is to be looked at."""
        return not self.settings.param_list or parameter in self.settings.param_list

    def write(self, step: int, rows: Sequence[GradientRow], signs: Iterable[tuple[str, SignMap]]) -> None:
        """Write what was seen at a step. Raises OSError or RecordingError where the disk refuses."""
        if self._files is None:
            self._files = ProbeFiles(self.settings.dump_path / f"rank{self.rank() or 0}", self.settings)
        self._files.write(step, rows, signs)
        self._written.add(step)

    def report_unlisted(self, parameters: Sequence[str]) -> None:
        """Report which names of ``param_list`` are none of these."""
        unknown = [name for name in self.settings.param_list if name not in parameters]
        if unknown:
            example = f"; its names are such as {parameters[0]!r}" if parameters else ""
            hint = did_you_mean(unknown[0], parameters) or example
            self.warn_once(f"grad_probe.param_list: not parameters of this model: {', '.join(unknown)}{hint}")

    def report_failure(self, error: Exception) -> None:
        """Report that a step could not be read or written."""
        self.warn_once(f"gradients of a step are not written: {error or type(error).__name__}")

    def warn_once(self, text: str) -> None:
        """Log a warning, the first time."""
        if text not in self._warned:
            self._warned.add(text)
            _log.warning("%s", text)


@dataclass(frozen=True, slots=True)
class GradientRow:
    """Row of a summary on one gradient.

    ``norm`` is the 2-norm. ``shares`` are the fractions of elements in each interval between the bounds and of those
    that are 0, at level L2; ``md5``, of the elements as float32, at level L0.
    """

    parameter: str
    shape: tuple[int, ...]
    max: float
    min: float
    norm: float
    shares: tuple[float, ...] = ()
    md5: str | None = None


class ProbeFiles:
    """Writes steps below the folder of a rank, whole files only; those of a former run are overwritten.

    Raises OSError or RecordingError where the disk refuses.
    """

    def __init__(self, folder: Path, settings: ProbeSettings) -> None:
        make_folder(folder)
        self.folder = folder
        self._settings = settings
        self._last = -1
        former = sum(1 for _ in folder.glob("grad_summary_*.csv"))
        if former:
            _log.warning(
                "%s holds %d steps of an earlier run; a step that is written again replaces the old one", folder, former
            )

    def write(self, step: int, rows: Sequence[GradientRow], signs: Iterable[tuple[str, SignMap]]) -> None:
        """Write the gradients of one step; the summary comes last. To a step that was written here, add them.

        Where the level keeps no signs, none are asked for.
        """
        if self._settings.keeps_signs:
            self._write_signs(self.folder / f"step{step}", signs)
        path = self.folder / f"grad_summary_{step}.csv"
        if step <= self._last and path.is_file():
            with path.open("ab") as file:
                file.write(_csv_lines(map(_cells, rows)))
            return
        with _replaced(path) as file:
            file.write(_csv_lines([_header(self._settings), *map(_cells, rows)], "utf-8-sig"))
        self._last = max(self._last, step)

    def _write_signs(self, folder: Path, signs: Iterable[tuple[str, SignMap]]) -> None:
        make_folder(folder)
        for parameter, map_ in signs:
            array = sign_maps.packed(map_) if self._settings.sign_format == "packed" else map_
            with _replaced(folder / sign_maps.file_name(parameter)) as file:
                write_npy(file, array)


def interval_shares(up_to: Sequence[int], zeros: int, total: int) -> tuple[float, ...]:
    """Return the fractions of elements in each interval between bounds, and of those that are 0.

    ``up_to`` is how many elements are not above each bound, ``total`` how many there are.
    """
    ends = [*up_to, total] if up_to else []
    inside = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    return tuple(count / total if total else 0.0 for count in (*inside, zeros))


def _header(settings: ProbeSettings) -> list[str]:
    checksum = ["MD5"] if settings.keeps_checksums else []
    shares = _intervals(settings.bounds) if settings.counts_intervals else []
    return ["param_name", *checksum, *shares, "max", "min", "norm", "shape"]


def _intervals(bounds: Sequence[int | float]) -> list[str]:
    if not bounds:
        return ["=0"]
    inner = [f"({left}, {right}]" for left, right in pairwise(bounds)]
    return [f"(-inf, {bounds[0]}]", *inner, f"({bounds[-1]}, inf)", "=0"]


def _cells(row: GradientRow) -> list[object]:
    checksum = [] if row.md5 is None else [row.md5]
    return [row.parameter, *checksum, *row.shares, row.max, row.min, row.norm, list(row.shape)]


def _csv_lines(rows: Iterable[Sequence[object]], encoding: str = "utf-8") -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    # A name may hold half of a surrogate pair, which no encoding of text has.
    return text.getvalue().encode(encoding, "backslashreplace")


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """Open a file that takes the place of ``path`` once it is whole."""
    part = path.parent / ".part"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE), "wb") as file:  # noqa: PTH123
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """A checked configuration. ``None`` for ``rank`` or ``step``, and no names in ``param_list``, mean all of them.

    ``bounds`` part the real numbers into intervals, each with its upper bound.
    """

    dump_path: Path = Path("./dump_path")
    rank: frozenset[int] | None = None
    step: frozenset[int] | None = None
    grad_level: str = "L1"
    param_list: tuple[str, ...] = ()
    bounds: tuple[int | float, ...] = (-1, 0, 1)
    sign_format: str = "bool"

    @property
    def task(self) -> str:
        """The task, as of any configuration."""
        return TASK

    @property
    def level(self) -> str:
        """The default level of a recording: gradients have none."""
        return "L1"

    @property
    def keeps_checksums(self) -> bool:
        """Return whether the MD5 of each gradient is written."""
        return self.grad_level == "L0"

    @property
    def keeps_signs(self) -> bool:
        """Return whether sign maps are written."""
        return self.grad_level != "L0"

    @property
    def counts_intervals(self) -> bool:
        """Return whether the share of elements in each interval is written."""
        return self.grad_level == "L2"


def probe_settings(common: Mapping[str, Any], **overrides: Any) -> ProbeSettings:
    """Check the content of a ``config.json``, of which ``overrides`` that are not None win. Raises ConfigError."""
    section = checks.object_with(_SECTION)(TASK, common.get(TASK) or {})
    shared = {field.name for field in fields(ProbeSettings)} - _SECTION.keys()
    given = {key: common[key] for key in common if key in shared}
    given |= {key: value for key, value in overrides.items() if value is not None}
    checked = {key: _COMMON[key](key, value) for key, value in given.items() if value is not None}
    checked |= {key: _SECTION[key](f"{TASK}.{key}", value) for key, value in section.items() if value is not None}
    return ProbeSettings(**checked)


def _parameters(key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise ConfigError(key, value, 'a list of names of parameters, such as ["fc.weight"]')
    return tuple(value)


def _bounds(key: str, value: object) -> tuple[int | float, ...]:
    allowed = "a list of ascending numbers within int64, such as [-1, 0, 1]"
    if not isinstance(value, list):
        raise ConfigError(key, value, allowed)
    for bound in value:
        if isinstance(bound, bool) or not isinstance(bound, (int, float)) or not -_INT64 <= bound < _INT64:
            raise ConfigError(key, bound, allowed)
    if any(left >= right for left, right in pairwise(value)):
        raise ConfigError(key, value, allowed)
    return tuple(value)


_SECTION: Mapping[str, Any] = {
    "grad_level": checks.one_of(LEVELS),
    "param_list": _parameters,
    "bounds": _bounds,
    "sign_format": checks.one_of(SIGN_FORMATS),
}
