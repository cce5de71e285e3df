"""Settings of a recording, read from arguments or from msprobe's ``config.json``.

A key of msprobe's that is no setting here is refused if it would change what is written, unless its value changes
nothing; docs/recording.md lists them all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from msprobe_hooks.dump import containers
from msprobe_hooks.errors import ConfigError, unknown_name
from msprobe_hooks.recording import validators as checks
from msprobe_hooks.recording.filters import DataMode
from msprobe_hooks.recording.spool_writer import SpoolSettings

# Values that change nothing, and what is allowed in place of others.
_OFF = (None, False)
_EMPTY: tuple[object, ...] = (None, "", [])
_COMMON: dict[str, tuple[Sequence[object], str]] = {
    "acl_config": (_EMPTY, "not supported; level L2 with a record's name in list dumps the kernels of a call"),
}
_SECTION: dict[str, tuple[Sequence[object], str]] = {
    "online_run_ut": (_OFF, "false; check the dump afterwards, with pytest --msprobe-dump"),
    "check_mode": ((None, "all"), "all; the other modes are for MindSpore's static graphs"),
    "slice": (_EMPTY, "not supported, as whole tensors are recorded"),
    "request_id": (_EMPTY, "not supported, as whole tensors are recorded"),
    "bench_path": (_EMPTY, "not supported; compare the two dumps afterwards, with pytest --msprobe-compare"),
    "backward_input": (_EMPTY, "not supported; record with level L2 and the name of a backward record in list"),
}

# What msprobe takes and does not follow either, in its newest version.
_IGNORED: dict[str, tuple[Sequence[object], str]] = {
    "enable_dataloader": (_OFF, "call start(), stop() and step() around each step"),
    "seed": ((None,), "call seed_all(seed) in the script"),
    "is_deterministic": (_OFF, "call seed_all(seed, mode=True) in the script"),
}

# Numbers are exact whatever ``precision`` says; the others belong to keys above or to static graphs.
_COMMON_WITHOUT_EFFECT = frozenset({"precision", "dump_enable", *_IGNORED})
_SECTION_WITHOUT_EFFECT = frozenset(
    {"online_run_ut_recompute", "nfs_path", "tls_path", "host", "port", "diff_nums"}
    | {"file_format", "device", "precision"}
)

#: Tasks of msprobe that are not recordings here, each with what replaces it.
REPLACED_TASKS: Mapping[str, str] = {
    "diff_check": "not supported; record both runs with summary_mode md5, then compare them: pytest --msprobe-compare",
    "exception_dump": "not supported; record with task statistics: the record of a call that raised has its exception",
}

#: Tasks of msprobe that check a dump: what is recorded for them.
CHECKING_TASKS = frozenset({"acc_check", "run_ut"})
RECORDED_FOR_CHECK = "statistics"

#: The sections of msprobe's tasks, one each.
SECTIONS = frozenset(
    {"statistics", "tensor", "structure", "overflow_check", "free_benchmark", "run_ut", "acc_check", "grad_probe"}
    | {"exception_dump", "diff_check", "nan_check"}
)
COMMON_KEYS = _COMMON_WITHOUT_EFFECT | _COMMON.keys()
SECTION_KEYS = _SECTION_WITHOUT_EFFECT | _SECTION.keys()


@cache
def _warn_ignored(path: str, key: str, remedy: str) -> None:
    _log.warning("%s: %s is ignored, as recording changes nothing; %s", path, key, remedy)


def refuse_common(section: Mapping[str, object]) -> None:
    """Raise ConfigError for a common key that would change what msprobe writes and has no such effect here."""
    _refuse(section, _COMMON, "")


def refuse_section(task: str, section: Mapping[str, object]) -> None:
    """Raise ConfigError as ``refuse_common`` does, for the keys of a task's section."""
    _refuse(section, _SECTION, f"{task}.")


def _refuse(section: Mapping[str, object], keys: Mapping[str, tuple[Sequence[object], str]], prefix: str) -> None:
    for key, (harmless, allowed) in keys.items():
        if section.get(key) not in harmless:
            raise ConfigError(f"{prefix}{key}", section[key], allowed)


Level = Literal["L0", "L1", "L2", "mix", "debug", "aten", "compiled"]
Task = Literal["statistics", "tensor", "structure", "overflow_check", "nan_check"]
SummaryMode = Literal["statistics", "md5", "xor"]
TensorFiles = Literal["pt", "safetensors"]
Compression = Literal["none", "zstd"]
SpoolFull = Literal["wait", "drop"]
RiskLevel = Literal["ALL", "FOCUS", "CORE"]
Names: TypeAlias = "list[str] | tuple[str, ...]"
#: Numbers, and ranges of them such as ``"3-5"``.
Numbers: TypeAlias = "list[Any] | tuple[int | str, ...]"

LEVELS: tuple[str, ...] = get_args(Level)
OVERFLOW_TASKS = ("overflow_check", "nan_check")
TASKS: tuple[str, ...] = get_args(Task)
SUMMARY_MODES: tuple[str, ...] = get_args(SummaryMode)
DATA_MODES = ("all", "input", "output", "forward", "backward")
TENSOR_FILES: tuple[str, ...] = get_args(TensorFiles)
COMPRESSIONS: tuple[str, ...] = get_args(Compression)
SPOOL_FULL: tuple[str, ...] = get_args(SpoolFull)
RISK_LEVELS: tuple[str, ...] = get_args(RiskLevel)

_log = logging.getLogger("msprobe_hooks")

API_NAME = re.compile(r"[A-Za-z]\w*(\.\w+)+\.\d+\.(forward|backward)")
_MODULE_NAME = re.compile(r"(Module|Cell)(\.\w+)+\.(forward|backward)\.\d+")


class RecordOptions(TypedDict, total=False):
    """Options of ``record`` that are keys of ``config.json`` as well, as a user writes them."""

    task: Task
    rank: Numbers
    step: Numbers
    scope: Names
    list: Names
    data_mode: Names
    summary_mode: SummaryMode
    tensor_list: Names
    tensor_files: TensorFiles
    compression: Compression
    async_dump: bool
    extra_info: bool
    risk_level: RiskLevel
    exclude: Names
    custom_op_namespaces: Names
    overflow_nums: int
    spool_size: int | str
    spool_full: SpoolFull
    spool_wait: float
    golden_path: str | Path


@dataclass(frozen=True, slots=True)
class Settings:
    """A checked configuration. ``None`` for ``rank`` or ``step`` means all of them.

    With ``spool_size``, in bytes, ``dump_path`` is a spool folder; ``spool_wait`` is in seconds. ``golden_path`` is the
    folder of what the operators of compiled kernels compute uncompiled.
    """

    dump_path: Path = Path("./dump_path")
    task: str = "statistics"
    level: str = "L1"
    rank: frozenset[int] | None = None
    step: frozenset[int] | None = None
    scope: tuple[str, ...] = ()
    list: tuple[str, ...] = ()
    data_mode: tuple[str, ...] = ("all",)
    summary_mode: str = "statistics"
    tensor_list: tuple[str, ...] = ()
    tensor_files: str = "pt"
    compression: str = "none"
    async_dump: bool = False
    extra_info: bool = True
    risk_level: str = "ALL"
    exclude: tuple[str, ...] = ()
    custom_op_namespaces: tuple[str, ...] = ("_C_ascend",)
    overflow_nums: int = 1
    spool_size: int | None = None
    spool_full: str = "wait"
    spool_wait: float = 300.0
    golden_path: Path | None = None

    @property
    def records_apis(self) -> bool:
        """Return whether API calls are recorded."""
        return self.level in ("L1", "mix")

    @property
    def records_modules(self) -> bool:
        """Return whether module calls are recorded."""
        return self.level in ("L0", "mix")

    @property
    def keeps_tensors(self) -> bool:
        """Return whether any tensor is written to a file."""
        return self.task in ("tensor", *OVERFLOW_TASKS) or bool(self.tensor_list)

    @property
    def spool(self) -> SpoolSettings | None:
        """Return how ``dump_path`` is a spool folder, None where it is none."""
        if self.spool_size is None:
            return None
        return SpoolSettings(self.spool_size, self.spool_wait if self.spool_full == "wait" else 0.0)

    @property
    def directions(self) -> DataMode:
        """Return which directions and sides of a call are recorded."""
        return DataMode.of(self.data_mode)


def settings(dump_path: str | Path, **options: Any) -> Settings:
    """Check the keyword options of ``record``, named as the keys of ``config.json``. Raises ConfigError."""
    names = {field.name for field in fields(Settings)} - {"dump_path"}
    for key in options:
        if key not in names:
            raise unknown_name("record() has no option", key, options[key], names | {"model", "framework"})
    checked = {key: _CHECKS[key](key, value) for key, value in options.items()}
    return _consistent(Settings(dump_path=checks.path("dump_path", dump_path), **checked))


def read_common(path: str | Path) -> dict[str, Any]:
    """Read msprobe's ``config.json``: the keys that tasks share, and their sections as they are. Raises ConfigError."""
    common = checks.read_json(path)
    for key in common:
        if key not in _COMMON_KEYS and key not in COMMON_KEYS and key not in SECTIONS:
            raise unknown_name(f"{path}: unknown key", key, common[key], _COMMON_KEYS | SECTIONS)
    refuse_common(common)
    for key, (harmless, remedy) in _IGNORED.items():
        if common.get(key) not in harmless:
            _warn_ignored(str(path), key, remedy)
    return common


def read_config(path: str | Path, **overrides: Any) -> Settings:
    """Read msprobe's ``config.json``; ``overrides`` that are not None win over the file. Raises ConfigError."""
    common = read_common(path)
    values = {key: value for key, value in common.items() if key in _CHECKS} | {
        key: value for key, value in overrides.items() if value is not None
    }
    task = _task("task", values.get("task") or "statistics")
    keys = _KEYS_OF_TASKS.get(task, _SECTION_KEYS)
    # Keys that only other tasks follow may have the values that change nothing there.
    section = checks.object_with(keys, also={*SECTION_KEYS, *_SECTION_KEYS})(task, common.get(task) or {})
    refuse_section(task, section)
    values |= {key: value for key, value in section.items() if key in keys or key in _SECTION_KEYS}
    values["task"] = task
    dump_path = values.pop("dump_path", None) or common.get("dump_path") or Settings().dump_path
    return settings(dump_path, **{key: value for key, value in values.items() if value not in (None, "")})


def _consistent(options: Settings) -> Settings:
    _check_spool(options)
    _check_compression(options)
    _check_golden(options)
    if options.task == "structure" and not options.records_modules:
        return replace(options, level="mix")
    if options.async_dump and options.summary_mode != "statistics":
        raise ConfigError("summary_mode", options.summary_mode, "statistics with async_dump")
    if options.level == "debug" and options.task == "structure":
        raise ConfigError("task", options.task, "statistics or tensor at level debug")
    if options.task in OVERFLOW_TASKS:
        options = _looking_for_overflow(options)
    _check_scope(options)
    return options


def _looking_for_overflow(options: Settings) -> Settings:
    if options.level not in ("L0", "L1", "mix"):
        raise ConfigError("level", options.level, f"L0, L1 or mix with task {options.task}")
    for field in fields(Settings):
        value = getattr(options, field.name)
        if field.name in ("data_mode", "summary_mode", "tensor_list") and value != field.default:
            shown = list(value) if isinstance(value, tuple) else value
            raise ConfigError(field.name, shown, f"not supported with task {options.task}")
    return replace(options, overflow_nums=-1) if options.task == "nan_check" else options


def _check_spool(options: Settings) -> None:
    """Refuse a spool folder of records that pytest --msprobe-dump cannot check."""
    if options.spool_size is None:
        for field in fields(Settings):
            if field.name in ("spool_full", "spool_wait") and getattr(options, field.name) != field.default:
                raise ConfigError(field.name, getattr(options, field.name), "not supported without spool_size")
        return
    if options.task not in ("statistics", "tensor"):
        raise ConfigError("task", options.task, "statistics or tensor with spool_size")
    if options.level not in ("L1", "mix", "aten"):
        raise ConfigError("level", options.level, "L1, mix or aten with spool_size")


def _check_golden(options: Settings) -> None:
    if options.golden_path is None:
        return
    if options.level not in ("compiled", "aten"):
        raise ConfigError("golden_path", options.golden_path, "level compiled or aten with golden_path")
    if options.golden_path.absolute() == options.dump_path.absolute():
        raise ConfigError("golden_path", options.golden_path, "another folder than that of the recording")


def _check_compression(options: Settings) -> None:
    if options.compression == "none":
        return
    if options.tensor_files != "safetensors":
        raise ConfigError("compression", options.compression, "none, or zstd with tensor_files safetensors")
    if not containers.is_available():
        raise ConfigError("compression", options.compression, f"none, or zstd with zstandard: {containers.REMEDY}")


def _check_scope(options: Settings) -> None:
    if not options.scope:
        return
    if len(options.scope) != 2:
        raise ConfigError("scope", list(options.scope), "two record names, the first and the last of a range")
    patterns = {"L0": (_MODULE_NAME,), "mix": (_MODULE_NAME, API_NAME)}.get(options.level, (API_NAME,))
    form = {"L0": "Module.path.Class.forward.0", "mix": "Module.path.Class.forward.0 or Type.api.0.forward"}
    for name in options.scope:
        if not any(pattern.fullmatch(name) for pattern in patterns):
            raise ConfigError("scope", name, f"a name such as {form.get(options.level, 'Type.api.0.forward')}")


def _task(key: str, value: object) -> str:
    if isinstance(value, str) and value in CHECKING_TASKS:
        _log.warning(
            "task %s: statistics are recorded; check them: pytest --msprobe-dump DUMP --msprobe-config config.json",
            value,
        )
        return RECORDED_FOR_CHECK
    if not isinstance(value, str) or value not in TASKS:
        if isinstance(value, str) and value in REPLACED_TASKS:
            raise ConfigError(key, value, REPLACED_TASKS[value])
        allowed = f"{', '.join(TASKS)}; for a PrecisionDebugger also free_benchmark, grad_probe"
        raise ConfigError(key, value, allowed, known=(*TASKS, "free_benchmark", "grad_probe"))
    return value


def _overflow_nums(key: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (value != -1 and value < 1):
        raise ConfigError(key, value, "an integer >= 1, or -1 for no limit")
    return value


def _data_modes(key: str, value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else checks.names(key, value)
    for name in names:
        if name not in DATA_MODES:
            raise ConfigError(key, name, ", ".join(DATA_MODES), known=DATA_MODES)
    if "all" in names and len(names) > 1:
        raise ConfigError(key, list(names), '"all" alone, or some of ' + ", ".join(DATA_MODES[1:]))
    return tuple(names) or ("all",)


_CHECKS: Mapping[str, Any] = {
    "dump_path": checks.path,
    "task": _task,
    "level": checks.one_of(LEVELS),
    "rank": checks.numbers,
    "step": checks.numbers,
    "scope": checks.names,
    "list": checks.names,
    "data_mode": _data_modes,
    "summary_mode": checks.one_of(SUMMARY_MODES),
    "tensor_list": checks.names,
    "tensor_files": checks.one_of(TENSOR_FILES),
    "compression": checks.one_of(COMPRESSIONS),
    "async_dump": checks.flag,
    "extra_info": checks.flag,
    "risk_level": checks.one_of(RISK_LEVELS),
    "exclude": checks.names,
    "custom_op_namespaces": checks.names,
    "overflow_nums": _overflow_nums,
    "spool_size": checks.size,
    "spool_full": checks.one_of(SPOOL_FULL),
    "spool_wait": checks.seconds,
    "golden_path": checks.path,
}

_SECTION_KEYS = ("scope", "list", "exclude", "data_mode", "summary_mode", "tensor_list")
_OVERFLOW_KEYS = ("scope", "list", "exclude")
_KEYS_OF_TASKS = {"overflow_check": ("overflow_nums", *_OVERFLOW_KEYS), "nan_check": _OVERFLOW_KEYS}
SPOOL_KEYS = ("spool_size", "spool_full", "spool_wait")
_COMMON_KEYS = frozenset(
    {"task", "dump_path", "level", "rank", "step", "async_dump", "extra_info", "risk_level", "custom_op_namespaces"}
).union(SPOOL_KEYS, {"tensor_files", "compression", "load", "golden_path"})
