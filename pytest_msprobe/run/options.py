"""Options of every run, whatever is made of its dumps."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from pytest_msprobe.containment.process import forks_compute
from pytest_msprobe.errors import DeviceError, OptionError, RulesError, no_effect, not_one_of, unknown_value
from pytest_msprobe.run import shared_options
from pytest_msprobe.run.mode import Mode, modes_of
from pytest_msprobe.run.msprobe_config import RunUt, read_peer
from pytest_msprobe.run.option_data import DEVICES, HOW, JOURNAL, RECORD, RESULTS, WHAT, written_names
from pytest_msprobe.run.option_fields import as_path, number, one_of, option, output_folder, read_fields, setting, words
from pytest_msprobe.run.shard_option import SHARD, Shard, divides_dumps, read_shard

if TYPE_CHECKING:
    from pytest_msprobe.devices.math_modes import MathMode
    from pytest_msprobe.devices.registry import DeviceChoice, DeviceRegistry

RealData = Literal["auto", "never"]
LayoutChoice = Literal["auto", "contiguous"]
Level = Literal["L0", "L1", "L2"]

_ISOLATE, _PEER = "--msprobe-isolate", "--msprobe-config"
#: What settings call the level of a run without --msprobe-level.
BY_API = "by API"
#: As pytest_msprobe.results.outcomes has them, in the order of a summary.
_OUTCOMES = ("pass", "warn", "fail", "skip", "crash", "timeout", "oom", "error")


def _device(config: pytest.Config, name: str, text: str) -> DeviceChoice:
    from pytest_msprobe.devices.registry import ACCELERATOR, AUTO, parse_device

    devices = config.stash[devices_key]
    try:
        choice = parse_device(text, devices)
        if choice.name not in (AUTO, ACCELERATOR):
            devices.get(choice.name)
    except DeviceError as error:
        raise OptionError(f"{name}: {error}") from None
    return choice


def _policy(config: pytest.Config, name: str, text: str) -> str:
    return find_policy(text, config.invocation_params.dir, name)


def _valid_rows(config: pytest.Config, name: str, text: str) -> Path:
    from msprobe_hooks.dump.effects import set_valid_rows
    from pytest_msprobe.run.valid_rows_file import read_valid_rows

    path = as_path(config, name, text)
    try:
        set_valid_rows(read_valid_rows(path))
    except RulesError as error:
        raise OptionError(f"{name}: {error}") from None
    return path


def patterns(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names and patterns of texts that separate them by commas or spaces."""
    return tuple(pattern for text in texts for pattern in re.split(r"[,\s]+", text) if pattern)


# Help texts start with a small letter, are one sentence without a full stop, and name the default.
@dataclass(frozen=True, slots=True)
class Options:
    """Options of every run. ``mode`` says what is made of ``dumps``, and keeps its own options."""

    mode: Mode
    dumps: tuple[str, ...]
    device: DeviceChoice = option(
        "--msprobe-device",
        "device to check: npu, cuda, cpu, sim, accelerator (torch's own choice), a device type of torch such as xpu, "
        "compiled[:BACKEND], remote:SPEC or a registered one; indices choose cards, such as npu:0-3 (default: auto, "
        "which is an NPU if there is one, else torch's accelerator, else a GPU, else the CPU)",
        metavar="NAME[:INDICES]",
        read=_device,
        rerun=False,
        group=DEVICES,
    )
    only: tuple[str, ...] = option(
        "--msprobe-only",
        "check only these APIs: names or patterns with commas between them, such as conv2d,Torch.linalg.* (repeatable; "
        "default: all)",
        metavar="APIS",
        repeat=True,
        rerun=False,
        group=WHAT,
    )
    skip: tuple[str, ...] = option(
        "--msprobe-skip",
        "leave out these APIs, named as for --msprobe-only (repeatable; default: none)",
        metavar="APIS",
        repeat=True,
        rerun=False,
        group=WHAT,
    )
    unique: bool = option(
        "--msprobe-unique",
        "check calls that differ only in the values of their tensors once",
        rerun=False,
        group=WHAT,
    )
    policy: str = option(
        "--msprobe-policy",
        "policy that chooses the standard and the limits of each API: default, msprobe-1.2, msprobe-26, mindspore-1.2 "
        "or a YAML file (default: default)",
        metavar="NAME|FILE",
        read=_policy,
        default="default",
        group=HOW,
    )
    level: Level | None = option(
        "--msprobe-level",
        "strictness of the policy msprobe-26: L0, L1 or L2 (default: the level of each API)",
        metavar="LEVEL",
        read=one_of("L0", "L1", "L2"),
        group=HOW,
    )
    seed: int = option(
        "--msprobe-seed",
        "seed of the random inputs (default: 0)",
        metavar="N",
        read=number(int, "a whole number"),
        default=0,
        group=HOW,
    )
    real_data: RealData = option(
        "--msprobe-real-data",
        "auto uses the recorded tensors where the dump has them, never always draws random ones (default: auto)",
        metavar="auto|never",
        read=one_of("auto", "never"),
        default="auto",
        group=HOW,
    )
    layout: LayoutChoice = option(
        "--msprobe-layout",
        "auto gives the device inputs that lie in memory as they were recorded, or as the calls before show, "
        "contiguous always gives it contiguous ones (default: auto)",
        metavar="auto|contiguous",
        read=one_of("auto", "contiguous"),
        default="auto",
        group=HOW,
    )
    math_mode: MathMode = option(
        "--msprobe-math-mode",
        "auto allows for TF32, HF32 and other modes that the device reports as on where a result fails by its dtype, "
        "strict judges by the dtype alone (default: auto)",
        metavar="auto|strict",
        read=one_of("auto", "strict"),
        default="auto",
        group=HOW,
    )
    valid_rows: Path | None = option(
        "--msprobe-valid-rows",
        "YAML file of operations that define only some rows of their results, in the form of valid_rows or of "
        "msprobe's api_output_postprocess.yaml, in addition to the built-in ones",
        metavar="FILE",
        read=_valid_rows,
        group=HOW,
    )
    csv: Path | None = option(
        "--msprobe-csv",
        "write msprobe's CSV tables of the check or the comparison to this folder",
        metavar="DIR",
        read=output_folder,
        rerun=False,
        group=RESULTS,
    )
    journal: Path | None = option(
        "--msprobe-journal",
        "write a line for each finished item to this file, for --msprobe-resume and pytest-msprobe report",
        metavar="FILE",
        read=as_path,
        rerun=False,
        group=JOURNAL,
    )
    resumed: Path | None = option(
        "--msprobe-resume",
        "run the items that are not in this journal, and add them to it",
        metavar="JOURNAL",
        read=as_path,
        rerun=False,
        group=JOURNAL,
    )
    rerun: tuple[str, ...] = option(
        "--msprobe-rerun",
        "with --msprobe-resume, also run items that ended with these outcomes, such as crash,timeout: "
        f"{', '.join(_OUTCOMES)} (repeatable)",
        metavar="OUTCOMES",
        repeat=True,
        rerun=False,
        group=JOURNAL,
    )
    timeout: float | None = option(
        "--msprobe-timeout",
        "fail an item that takes longer than this many seconds; large records get more (default: no limit)",
        metavar="SECONDS",
        read=number(float, "a positive number of seconds", lambda seconds: seconds > 0),
        rerun=False,
        group=DEVICES,
    )
    isolate: bool = option(
        _ISOLATE,
        "run items in a child process, which is replaced if an item kills it or hangs",
        rerun=False,
        group=DEVICES,
    )
    shard: Shard | None = option(
        SHARD,
        "check part I of N of the dumps, such as 3/8, for job arrays: parts have equal work and share no record; "
        "or compare part I of N of the steps and ranks",
        metavar="I/N",
        read=read_shard,
        rerun=False,
        group=WHAT,
    )
    peer: RunUt = option(
        _PEER,
        "apply the run_ut section of msprobe's config.json to a check; explicit options take precedence",
        metavar="FILE",
        read=read_peer,
        default=RunUt(),
        rerun=False,
        group=WHAT,
    )
    record: Path | None = option(
        "--msprobe-record",
        "record each test marked msprobe_record to a folder of its own in DIR",
        metavar="DIR",
        read=as_path,
        rerun=False,
        group=RECORD,
    )
    record_options: tuple[str, ...] = setting(
        "msprobe_record_options",
        "options of recordings made by tests, one key=value per line, such as level=mix (default: none)",
        kind="linelist",
        rerun=False,
    )
    usual_dumps: tuple[Path, ...] = setting(
        "msprobe_dumps",
        "dumps to check if the command line names nothing to run, relative to the ini file",
        kind="paths",
        rerun=False,
    )

    @property
    def resume(self) -> bool:
        """Return whether the run goes on with a journal."""
        return self.resumed is not None

    def words(self, *, with_device: bool = True) -> list[str]:
        """Return the command-line words that ask for the same verdicts, on the same device or on none."""
        return [*(["--msprobe-device", str(self.device)] if with_device else []), *words(self)]

    def settings(self) -> dict[str, str]:
        """Return what two runs on a device must share for one to go on with the other's journal."""
        settings = {
            "level": self.level or BY_API,
            "device": self.device.name,
            "seed": str(self.seed),
            "real_data": self.real_data,
        }
        modes = {"math_mode": self.math_mode, "layout": self.layout}
        return settings | {name: value for name, value in modes.items() if value != "auto"}


options_key = pytest.StashKey[Options]()
devices_key: pytest.StashKey[DeviceRegistry] = pytest.StashKey()


def read_options(config: pytest.Config) -> Options:
    """Read and check the options, once: ``-n auto`` needs them before pytest is configured.

    Raises OptionError.
    """
    if options_key not in config.stash:
        from pytest_msprobe.devices.registry import DeviceRegistry

        config.stash[devices_key] = devices = DeviceRegistry()
        config.hook.pytest_msprobe_register_devices(registry=devices)
        config.stash[options_key] = _read_options(config)
    return config.stash[options_key]


def _read_options(config: pytest.Config) -> Options:
    from msprobe_hooks.dump.effects import set_valid_rows
    from pytest_msprobe.devices.registry import AUTO, DeviceChoice

    _refuse_unknown_settings(config)
    mode, dumps = modes_of(config).chosen(config)
    set_valid_rows({})
    declared = read_fields(config, Options, mode=mode, dumps=dumps)
    if declared.peer.file is not None:
        modes_of(config).require_check(mode, _PEER)
    if declared.isolate and not forks_compute():
        raise OptionError(f"{_ISOLATE}: this system forks no process that computes; install the extra xdist")
    if declared.shard is not None and not divides_dumps(mode):
        modes_of(config).require_check(mode, SHARD)
    options = replace(
        declared,
        device=declared.device or DeviceChoice(AUTO),
        only=patterns(declared.only) or declared.peer.white_list,
        skip=patterns(declared.skip) or declared.peer.black_list,
        journal=_journal(declared),
        rerun=_outcomes(declared),
    )
    if options.level is not None and mode is modes_of(config).default:
        require_level(options.policy, options.level)
    shared_options.refuse_unknown(config, mode)
    modes_of(config).read_options(config, mode)
    return options


def _refuse_unknown_settings(config: pytest.Config) -> None:
    """Raise OptionError for a setting of the command line that there is not; of the ini file pytest warns of one."""
    for text in config.option.override_ini or ():
        name = text.partition("=")[0]
        if name.startswith("msprobe_"):
            from msprobe_hooks.messages import did_you_mean

            try:
                config.getini(name)
            except (KeyError, ValueError, pytest.UsageError) as error:
                if "unknown configuration value" in str(error):
                    raise OptionError(f"-o {name}: no such setting{did_you_mean(name, written_names())}") from None


def has_dump_arguments(config: pytest.Config) -> bool:
    """Return whether the command line names dumps, before it is known whether they can be read."""
    return bool(modes_of(config).flagged(config)) or any(".json" in argument for argument in config.args)


def _journal(options: Options) -> Path | None:
    if options.journal and options.resumed:
        raise OptionError(
            "--msprobe-journal starts a journal and --msprobe-resume continues one", remedy="pass one of them"
        )
    return options.journal or options.resumed


def _outcomes(options: Options) -> tuple[str, ...]:
    outcomes = patterns(options.rerun)
    for outcome in outcomes:
        if outcome not in _OUTCOMES:
            raise unknown_value("--msprobe-rerun", outcome, _OUTCOMES)
    if outcomes and options.resumed is None:
        raise no_effect("--msprobe-rerun", "--msprobe-resume JOURNAL")
    return outcomes


def find_policy(text: str, folder: Path, option: str = "--msprobe-policy") -> str:
    """Return the name of a built-in policy, or the path of a file, which may be relative to a folder.

    Raises OptionError, which names the option, where there is neither.
    """
    from msprobe_standards import built_in_policies

    names = built_in_policies()
    if text in names:
        return text
    path = folder / text
    if not path.is_file():
        raise OptionError(f"{option} {text!r}: not a file, and {not_one_of(text, names)}")
    return str(path)


def require_level(policy: str, level: str) -> None:
    """Raise OptionError for a level of a policy that has none."""
    from msprobe_standards.policy import declared_levels

    if not declared_levels(policy):
        name = Path(policy).stem if policy.endswith((".yaml", ".yml")) else policy
        raise OptionError(
            f"--msprobe-level {level!r}: policy {name} has no levels",
            remedy="choose one with levels, such as msprobe-26, by --msprobe-policy",
        )
