"""Command-line options and their ini twins."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

import pytest

from msprobe_hooks.dump.paths.recording import home_of
from msprobe_hooks.dump.unread.effects import set_valid_rows
from msprobe_standards import built_in_policies
from pytest_msprobe.containment.options import read_isolate
from pytest_msprobe.devices.reduced_precision import MathMode
from pytest_msprobe.devices.registry import AUTO, DeviceChoice, DeviceRegistry, on_card, parse_device
from pytest_msprobe.errors import DeviceError, OptionError, RulesError, no_effect, unknown_value
from pytest_msprobe.results.outcomes import OUTCOMES
from pytest_msprobe.run import msprobe_config, shard_option, shared_options
from pytest_msprobe.run.mode import Mode, modes_of
from pytest_msprobe.run.option_groups import DEVICES, HOW, JOURNAL, RESULTS, WHAT, option_group

RealData = Literal["auto", "never"]
LayoutChoice = Literal["auto", "contiguous"]
Level = Literal["L0", "L1", "L2"]

# Help texts start with a small letter, are one sentence without a full stop, and name the default.
_INI_TWINS = {
    "device": f"device to check, see --msprobe-device (default: {AUTO})",
    "policy": "policy that judges, see --msprobe-policy (default: default)",
    "level": "strictness of the policy msprobe-26, see --msprobe-level (default: the level of each API)",
    "seed": "seed of the random inputs, see --msprobe-seed (default: 0)",
    "real_data": "whether recorded tensors are used, see --msprobe-real-data (default: auto)",
    "layout": "how inputs lie in the device's memory, see --msprobe-layout (default: auto)",
    "math_mode": "whether the device's math modes are allowed for, see --msprobe-math-mode (default: auto)",
    "timeout": "time limit of an item in seconds, see --msprobe-timeout (default: no limit)",
}
_INI_NUMBERS: dict[str, Literal["int", "float"]] = {"seed": "int", "timeout": "float"}


@dataclass(frozen=True, slots=True)
class Options:
    """What every run is asked for. ``mode`` says what is made of ``dumps``, and keeps its own options."""

    mode: Mode
    dumps: tuple[str, ...]
    device: DeviceChoice
    policy: str = "default"
    level: Level | None = None
    seed: int = 0
    real_data: RealData = "auto"
    layout: LayoutChoice = "auto"
    math_mode: MathMode = "auto"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    unique: bool = False
    csv: Path | None = None
    timeout: float | None = None
    isolate: bool = False
    journal: Path | None = None
    resume: bool = False
    rerun: tuple[str, ...] = ()
    shard: shard_option.Shard | None = None
    valid_rows: Path | None = None

    def words(self, *, with_device: bool = True) -> list[str]:
        """Return the command-line words that ask for the same verdicts, on the same device or on none."""
        words = ["--msprobe-device", str(self.device)] if with_device else []
        for flag, value, default in (
            ("--msprobe-policy", self.policy, "default"),
            ("--msprobe-level", self.level, None),
            ("--msprobe-seed", self.seed, 0),
            ("--msprobe-real-data", self.real_data, "auto"),
            ("--msprobe-layout", self.layout, "auto"),
            ("--msprobe-math-mode", self.math_mode, "auto"),
            ("--msprobe-valid-rows", self.valid_rows, None),
        ):
            words += [flag, str(value)] if value != default else []
        return words

    def settings(self) -> dict[str, str]:
        """Return what two runs on a device must share for one to go on with the other's journal."""
        settings = {
            "level": self.level or BY_API,
            "device": self.device.name,
            "seed": str(self.seed),
            "real_data": self.real_data,
        }
        chosen = {"math_mode": self.math_mode, "layout": self.layout}
        return settings | {name: value for name, value in chosen.items() if value != "auto"}


#: What settings call the level of a run without --msprobe-level.
BY_API = "by API"

options_key = pytest.StashKey[Options]()
devices_key = pytest.StashKey[DeviceRegistry]()


def add_options(parser: pytest.Parser) -> None:
    """Add the options that every run has, and the ini settings."""
    _add_what(option_group(parser, WHAT))
    _add_how(option_group(parser, HOW))
    option_group(parser, DEVICES).addoption(
        "--msprobe-device",
        metavar="NAME[:INDICES]",
        help="device to check: npu, cuda, cpu, sim, compiled[:BACKEND], remote:SPEC or a registered one; indices "
        f"choose cards, such as npu:0-3 (default: {AUTO}, which is an NPU if there is one, else a GPU, else the CPU)",
    )
    option_group(parser, RESULTS).addoption(
        "--msprobe-csv", metavar="DIR", help="write msprobe's CSV tables of the check or the comparison to this folder"
    )
    _add_journal(option_group(parser, JOURNAL))
    parser.addini(
        "msprobe_dump",
        "dumps to check if the command line names nothing to run, relative to the ini file, see --msprobe-dump",
        type="paths",
    )
    for name, text in _INI_TWINS.items():
        # Without a type, pytest does not read a number of pyproject.toml as one; before 8.4 it has neither type.
        kind = _INI_NUMBERS.get(name) if pytest.version_tuple >= (8, 4) else None
        parser.addini(f"msprobe_{name}", text, type=kind, default=None)


def _add_what(group: pytest.OptionGroup) -> None:
    add = group.addoption
    add(
        "--msprobe-only",
        metavar="APIS",
        action="append",
        default=[],
        help="check only these APIs: names or patterns with commas between them, such as conv2d,Torch.linalg.* "
        "(repeatable; default: all)",
    )
    add(
        "--msprobe-skip",
        metavar="APIS",
        action="append",
        default=[],
        help="leave out these APIs, named as for --msprobe-only (repeatable; default: none)",
    )
    add(
        "--msprobe-unique",
        action="store_true",
        help="check calls that differ only in the values of their tensors once",
    )
    shard_option.add_option(group)
    msprobe_config.add_option(group)


def _add_how(group: pytest.OptionGroup) -> None:
    add = group.addoption
    add(
        "--msprobe-policy",
        metavar="NAME|FILE",
        help="policy that chooses the standard and the limits of each API: default, msprobe-1.2, msprobe-26, "
        "mindspore-1.2 or a YAML file (default: default)",
    )
    add(
        "--msprobe-level",
        metavar="LEVEL",
        help="strictness of the policy msprobe-26: L0, L1 or L2 (default: the level of each API)",
    )
    add(
        "--msprobe-math-mode",
        metavar="auto|strict",
        help="auto allows for TF32, HF32 and other modes that the device reports as on where a result fails by its "
        "dtype, strict judges by the dtype alone (default: auto)",
    )
    add(
        "--msprobe-valid-rows",
        metavar="FILE",
        help="YAML file of operations that define only some rows of their results, in the form of valid_rows or of "
        "msprobe's api_output_postprocess.yaml, in addition to the built-in ones",
    )
    add("--msprobe-seed", metavar="N", help="seed of the random inputs (default: 0)")
    add(
        "--msprobe-real-data",
        metavar="auto|never",
        help="auto uses the recorded tensors where the dump has them, never always draws random ones (default: auto)",
    )
    add(
        "--msprobe-layout",
        metavar="auto|contiguous",
        help="auto gives the device inputs that lie in memory as they were recorded, or as the calls before show, "
        "contiguous always gives it contiguous ones (default: auto)",
    )


def _add_journal(group: pytest.OptionGroup) -> None:
    add = group.addoption
    add(
        "--msprobe-journal",
        metavar="FILE",
        help="write a line for each finished item to this file, for --msprobe-resume and pytest-msprobe report",
    )
    add(
        "--msprobe-resume",
        metavar="JOURNAL",
        help="run the items that are not in this journal, and add them to it",
    )
    add(
        "--msprobe-rerun",
        metavar="OUTCOMES",
        action="append",
        default=[],
        help="with --msprobe-resume, also run items that ended with these outcomes, such as crash,timeout: "
        f"{', '.join(OUTCOMES)} (repeatable)",
    )


def read_options(config: pytest.Config) -> Options:
    """Read and check the options, once: ``-n auto`` needs them before pytest is configured.

    Raises OptionError.
    """
    if options_key not in config.stash:
        config.stash[devices_key] = devices = DeviceRegistry()
        config.hook.pytest_msprobe_register_devices(registry=devices)
        config.stash[options_key] = _read_options(config, devices)
    return config.stash[options_key]


def _read_options(config: pytest.Config, devices: DeviceRegistry) -> Options:
    mode, dumps = modes_of(config).chosen(config)
    peer = msprobe_config.run_ut(config)
    if peer.file is not None:
        modes_of(config).require_check(mode, "--msprobe-config")
    options = Options(
        mode=mode,
        dumps=dumps,
        device=_device(_text(config, "device", AUTO), devices),
        policy=find_policy(_text(config, "policy", "default"), config.invocation_params.dir),
        level=cast("Level | None", _choice(config, "level", ("L0", "L1", "L2"), None)),
        seed=int(number(config, "seed", int, "a whole number", lambda seed: True) or 0),
        real_data=cast("RealData", _choice(config, "real_data", ("auto", "never"), "auto")),
        layout=cast("LayoutChoice", _choice(config, "layout", get_args(LayoutChoice), "auto")),
        math_mode=cast("MathMode", _choice(config, "math_mode", get_args(MathMode), "auto")),
        only=patterns(config.getoption("msprobe_only")) or peer.white_list,
        skip=patterns(config.getoption("msprobe_skip")) or peer.black_list,
        unique=bool(config.getoption("msprobe_unique")),
        csv=_folder(config),
        timeout=number(config, "timeout", float, "a positive number of seconds", lambda seconds: seconds > 0),
        isolate=read_isolate(config),
        journal=_journal(config),
        resume=bool(config.getoption("msprobe_resume")),
        rerun=_outcomes(config),
        shard=shard_option.read_shard(config, mode),
        valid_rows=_valid_rows(config),
    )
    if options.level is not None and mode is modes_of(config).default:
        _require_level(options.policy, options.level)
    shared_options.refuse_unknown(config, mode)
    for other in modes_of(config):
        other.read_options(config, is_chosen=other is mode)
    return options


def _require_level(policy: str, level: str) -> None:
    """Raise OptionError for a level of a policy that has none."""
    from msprobe_standards.policy import declared_levels

    if not declared_levels(policy):
        name = Path(policy).stem if policy.endswith((".yaml", ".yml")) else policy
        raise OptionError(
            f"--msprobe-level {level!r}: policy {name} has no levels",
            remedy="choose one with levels, such as msprobe-26, by --msprobe-policy",
        )


def has_dump_arguments(config: pytest.Config) -> bool:
    """Return whether the command line names dumps, before it is known whether they can be read."""
    return bool(modes_of(config).flagged(config)) or any(".json" in argument for argument in config.args)


def display_path(config: pytest.Config, path: Path) -> str:
    """Return a file, or a dump, as seen from the folder in which pytest was started, where it lies below that."""
    folder, path = config.invocation_params.dir, home_of(path)
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def record_argument(options: Options, dump: Path | str, record: str) -> str:
    """Return the argument that chooses one record of a dump."""
    # As an option, in one word, the dump's place changes neither pytest's rootdir nor which conftest.py are loaded.
    return f"{options.mode.flag}={dump}::{record}"


def rerun_command(config: pytest.Config, dump: Path | str, record: str, card: str = "") -> str:
    """Return the command that runs one record again, under the same options and on the card that it ran on."""
    options = config.stash[options_key]
    words = on_card(options.mode.rerun_words(config), card)
    return shlex.join(["pytest", record_argument(options, dump, record), *words])


def rerun_test_command(item: pytest.Item, card: str) -> str:
    """Return the command that runs one of the user's own tests again, from whichever folder.

    Without a mode's flag, that is a run of the default mode, whatever this one is.
    """
    test = f"{item.path}::{item.nodeid.partition('::')[2]}"
    return shlex.join(["pytest", test, *on_card(modes_of(item.config).default.rerun_words(item.config), card)])


def _text(config: pytest.Config, name: str, default: str) -> str:
    return config.getoption(f"msprobe_{name}") or config.getini(f"msprobe_{name}") or default


def _choice(config: pytest.Config, name: str, allowed: tuple[str, ...], default: str | None) -> str | None:
    value = _text(config, name, default or "")
    if value and value not in allowed:
        raise unknown_value(_flag(name), value, allowed)
    return value or None


def number(
    config: pytest.Config, name: str, kind: Callable[[str], float], wanted: str, valid: Callable[[float], bool]
) -> float | None:
    """Return the number that an option or its ini twin has, None where neither is set.

    Raises OptionError, which says what is ``wanted``, for a text that is not a number or not ``valid``.
    """
    try:
        given = config.getoption(f"msprobe_{name}") or config.getini(f"msprobe_{name}")
    except (TypeError, ValueError, pytest.UsageError) as error:
        # Whichever way pytest failed to read the setting, its text ends with the value.
        raise OptionError(f"{_flag(name)} {str(error).rpartition(': ')[2]}: expected {wanted}") from None
    if given is None or given == "":
        return None
    text = f"{given:g}" if isinstance(given, float) else str(given)
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not valid(value):
        raise OptionError(f"{_flag(name)} {text!r}: expected {wanted}")
    return value


def _flag(name: str) -> str:
    return f"--msprobe-{name.replace('_', '-')}"


def _device(text: str, devices: DeviceRegistry) -> DeviceChoice:
    try:
        choice = parse_device(text, devices)
        if choice.name != AUTO:
            devices.get(choice.name)
    except DeviceError as error:
        raise OptionError(f"--msprobe-device: {error}") from None
    return choice


def find_policy(text: str, folder: Path, option: str = "--msprobe-policy") -> str:
    """Return the name of a built-in policy, or the path of a file, which may be relative to a folder.

    Raises OptionError, which names the option, where there is neither.
    """
    known = built_in_policies()
    if text in known:
        return text
    path = folder / text
    if not path.is_file():
        from pytest_msprobe.messages import not_one_of

        raise OptionError(f"{option} {text!r}: not a file, and {not_one_of(text, known)}")
    return str(path)


def _valid_rows(config: pytest.Config) -> Path | None:
    """Return the file of operations that define some rows alone, which are known from here on. Raises OptionError."""
    text: str | None = config.getoption("msprobe_valid_rows")
    if not text:
        set_valid_rows({})
        return None
    from pytest_msprobe.run.valid_rows_file import read_valid_rows

    path = config.invocation_params.dir / text
    try:
        set_valid_rows(read_valid_rows(path))
    except RulesError as error:
        raise OptionError(f"--msprobe-valid-rows: {error}") from None
    return path


def _folder(config: pytest.Config) -> Path | None:
    text: Any = config.getoption("msprobe_csv")
    if not text:
        return None
    path: Path = config.invocation_params.dir / text
    if path.exists() and not path.is_dir():
        raise OptionError(f"--msprobe-csv {text!r}: not a directory")
    return path


def _journal(config: pytest.Config) -> Path | None:
    new, resumed = config.getoption("msprobe_journal"), config.getoption("msprobe_resume")
    if new and resumed:
        raise OptionError(
            "--msprobe-journal starts a journal and --msprobe-resume continues one", remedy="pass one of them"
        )
    text: str | None = new or resumed
    return None if text is None else Path(config.invocation_params.dir / text)


def _outcomes(config: pytest.Config) -> tuple[str, ...]:
    outcomes = patterns(config.getoption("msprobe_rerun"))
    for outcome in outcomes:
        if outcome not in OUTCOMES:
            raise unknown_value("--msprobe-rerun", outcome, OUTCOMES)
    if outcomes and not config.getoption("msprobe_resume"):
        raise no_effect("--msprobe-rerun", "--msprobe-resume JOURNAL")
    return outcomes


def patterns(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the names and patterns of texts that separate them by commas or spaces."""
    return tuple(pattern for text in texts for pattern in re.split(r"[,\s]+", text) if pattern)
