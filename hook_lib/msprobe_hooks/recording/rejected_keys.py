"""Keys of msprobe's ``config.json`` that are not options of a recording here.

One that would change what is written is refused unless its value changes nothing; docs/recording.md lists them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msprobe_hooks.errors import ConfigError

# Values that change nothing, and what is allowed in place of others.
_OFF = (None, False)
_EMPTY: tuple[object, ...] = (None, "", [])
_COMMON: dict[str, tuple[Sequence[object], str]] = {
    "enable_dataloader": (_OFF, "false; call start(), stop() and step() around each step"),
    "dump_enable": ((None,), "not supported, as the file is read once; call start() and stop() in the script"),
    "seed": ((None,), "not supported, as recording changes nothing; call seed_all(seed) in the script"),
    "is_deterministic": (_OFF, "false, as recording changes nothing; call seed_all(seed, mode=True) in the script"),
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

# Numbers are exact whatever ``precision`` says; the others belong to keys above or to static graphs.
_COMMON_WITHOUT_EFFECT = frozenset({"precision"})
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


def refuse_common(given: Mapping[str, object]) -> None:
    """Raise ConfigError for a common key that would change what msprobe writes and has no such effect here."""
    _refuse(given, _COMMON, "")


def refuse_section(task: str, given: Mapping[str, object]) -> None:
    """Raise ConfigError as ``refuse_common`` does, for the keys of a task's section."""
    _refuse(given, _SECTION, f"{task}.")


def _refuse(given: Mapping[str, object], keys: Mapping[str, tuple[Sequence[object], str]], prefix: str) -> None:
    for key, (harmless, allowed) in keys.items():
        if given.get(key) not in harmless:
            raise ConfigError(f"{prefix}{key}", given[key], allowed)
