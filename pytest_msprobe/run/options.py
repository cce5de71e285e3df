"""Command-line options and their ini twins."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from msprobe_standards import built_in_policies
from pytest_msprobe.containment import options as containment
from pytest_msprobe.containment.options import read_isolate
from pytest_msprobe.devices.device import DeviceError
from pytest_msprobe.devices.registry import AUTO, DeviceChoice, DeviceRegistry, parse_device
from pytest_msprobe.journal.file import OUTCOMES
from pytest_msprobe.modes.check.baselines import options as baselines
from pytest_msprobe.modes.check.cases import options as cases
from pytest_msprobe.modes.check.cases.options import read_save_options
from pytest_msprobe.modes.check.explore import options as explore
from pytest_msprobe.modes.check.explore.options import ExploreOptions, read_explore_options
from pytest_msprobe.modes.compare import options as compare
from pytest_msprobe.modes.compare.options import CompareOptions
from pytest_msprobe.modes.overflow import options as overflow
from pytest_msprobe.storage.sizes import SaveOptions

Mode = Literal["check", "overflow", "compare"]
RealData = Literal["auto", "never"]
Level = Literal["L0", "L1", "L2"]

# Help texts start with a small letter, are one sentence without a full stop, and name the default.
_INI_TWINS = {
    "device": f"device to check, see --msprobe-device (default: {AUTO})",
    "policy": "which standard judges what, see --msprobe-policy (default: default)",
    "level": "strictness of policy msprobe-26, see --msprobe-level",
    "seed": "seed of the random inputs, see --msprobe-seed (default: 0)",
    "real_data": "whether recorded tensors are used, see --msprobe-real-data (default: auto)",
    "timeout": "seconds that one item may take, see --msprobe-timeout (default: no limit)",
}


# The option that names the dumps of each mode.
_FLAGS: dict[Mode, str] = {"check": "dump", "overflow": "overflow", "compare": "compare"}


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for. ``mode`` says what is made of ``dumps``."""

    mode: Mode
    dumps: tuple[str, ...]
    device: DeviceChoice
    policy: str
    level: Level | None
    seed: int
    real_data: RealData
    only: tuple[str, ...]
    skip: tuple[str, ...]
    unique: bool
    csv: Path | None
    timeout: float | None
    isolate: bool
    journal: Path | None
    resume: bool
    rerun: tuple[str, ...]
    baseline: Path | None
    save_baseline: Path | None
    save_baseline_tensors: SaveOptions | None
    save: SaveOptions | None
    explore: ExploreOptions | None
    compare: CompareOptions | None


options_key = pytest.StashKey[Options]()
devices_key = pytest.StashKey[DeviceRegistry]()


def add_options(parser: pytest.Parser) -> None:
    """Add the option group and the ini settings."""
    group = parser.getgroup("msprobe", "precision checks of recorded API calls (msprobe)")
    add = group.addoption
    add("--msprobe-dump", metavar="PATH", action="append", default=[], help="dump.json to check, or a folder of them")
    add(
        "--msprobe-device",
        metavar="NAME[:INDICES]",
        help=f"what to check: npu, cuda, cpu, sim or a registered device, as in npu:0-3 (default: {AUTO}, the best)",
    )
    add(
        "--msprobe-policy",
        metavar="NAME|FILE",
        help="which standard judges what: default, msprobe-1.2, msprobe-26 or a YAML file (default: default)",
    )
    add("--msprobe-level", metavar="LEVEL", help="strictness of policy msprobe-26: L0, L1 or L2 (default: by API)")
    add("--msprobe-seed", metavar="N", help="seed of the random inputs (default: 0)")
    add(
        "--msprobe-real-data",
        metavar="auto|never",
        help="use the recorded tensors where the dump has them, or always random ones (default: auto)",
    )
    add(
        "--msprobe-only",
        metavar="APIS",
        action="append",
        default=[],
        help="check only these APIs: names or patterns such as conv2d,Torch.linalg.*",
    )
    add("--msprobe-skip", metavar="APIS", action="append", default=[], help="leave these APIs out, as --msprobe-only")
    add(
        "--msprobe-unique",
        action="store_true",
        help="check calls that are the same but for the values of their tensors once",
    )
    add(
        "--msprobe-csv", metavar="DIR", help="write msprobe's CSV tables, of a check or of a comparison, to this folder"
    )
    add("--msprobe-journal", metavar="FILE", help="write a line for each settled item to this file")
    add(
        "--msprobe-resume",
        metavar="JOURNAL",
        help="run what this journal lacks, and go on writing it",
    )
    add(
        "--msprobe-rerun",
        metavar="OUTCOMES",
        action="append",
        default=[],
        help=f"with --msprobe-resume, also run what ended so: {', '.join(OUTCOMES)}",
    )
    containment.add_options(group)
    baselines.add_options(group)
    cases.add_options(group)
    explore.add_options(group)
    add("--msprobe-record", metavar="DIR", help="record the tests marked msprobe_record, one folder per test")
    overflow.add_options(group)
    compare.add_options(group)
    parser.addini("msprobe_record_options", "key=value lines: options of recordings made by tests", "linelist", [])
    for name, text in _INI_TWINS.items():
        parser.addini(f"msprobe_{name}", text, default=None)


def read_options(config: pytest.Config) -> Options:
    """Read and check the options, once: ``-n auto`` needs them before pytest is configured.

    Raises pytest.UsageError that says what is allowed.
    """
    if options_key not in config.stash:
        config.stash[devices_key] = devices = DeviceRegistry()
        config.hook.pytest_msprobe_register_devices(registry=devices)
        config.stash[options_key] = _read_options(config, devices)
    return config.stash[options_key]


def _read_options(config: pytest.Config, devices: DeviceRegistry) -> Options:
    mode, dumps = _mode(config)
    return Options(
        mode=mode,
        dumps=dumps,
        device=_device(_text(config, "device", AUTO), devices),
        policy=_policy(_text(config, "policy", "default"), config.invocation_params.dir),
        level=cast("Level | None", _choice(config, "level", ("L0", "L1", "L2"), None)),
        seed=int(_number(config, "seed", int, "a whole number", lambda seed: True) or 0),
        real_data=cast("RealData", _choice(config, "real_data", ("auto", "never"), "auto")),
        only=_patterns(config.getoption("msprobe_only")),
        skip=_patterns(config.getoption("msprobe_skip")),
        unique=bool(config.getoption("msprobe_unique")),
        csv=_folder(config),
        timeout=_number(config, "timeout", float, "a positive number of seconds", lambda seconds: seconds > 0),
        isolate=read_isolate(config),
        journal=_journal(config),
        resume=bool(config.getoption("msprobe_resume")),
        rerun=_outcomes(config),
        baseline=baselines.baseline(config),
        save_baseline=baselines.save_baseline(config),
        save_baseline_tensors=baselines.save_baseline_tensors(config),
        save=read_save_options(config),
        explore=read_explore_options(config),
        compare=compare.read_options(config, mode == "compare"),
    )


def _mode(config: pytest.Config) -> tuple[Mode, tuple[str, ...]]:
    given = {mode: tuple(config.getoption(f"msprobe_{flag}")) for mode, flag in _FLAGS.items()}
    modes: list[Mode] = [mode for mode, dumps in given.items() if dumps]
    if len(modes) > 1:
        flags = " and ".join(_flag(_FLAGS[mode]) for mode in modes)
        raise pytest.UsageError(f"{flags}: one run does one of these; give one of them")
    mode = modes[0] if modes else "check"
    return mode, given[mode]


def names_dumps(config: pytest.Config) -> bool:
    """Tell whether the command line names dumps, before it is known whether they can be read."""
    flagged = any(config.getoption(f"msprobe_{flag}") for flag in _FLAGS.values())
    return flagged or any(".json" in argument for argument in config.args)


def record_argument(options: Options, dump: Path, record: str) -> str:
    """Return the argument that chooses one record of a dump."""
    # As an option, in one word, the dump's place changes neither pytest's rootdir nor which conftest.py are loaded.
    return f"{_flag(_FLAGS[options.mode])}={dump}::{record}"


def test_argument(item: pytest.Item) -> str:
    """Return the argument that chooses one test, from whichever folder."""
    return f"{item.path}::{item.nodeid.partition('::')[2]}"


def rerun_command(options: Options, chosen: str) -> str:
    """Return the command that checks what an argument chooses again, under the same options."""
    words = ["pytest", chosen]
    words += ["--msprobe-device", str(options.device)] if options.compare is None else options.compare.words()
    for flag, value, default in (
        ("--msprobe-policy", options.policy, "default"),
        ("--msprobe-level", options.level, None),
        ("--msprobe-seed", options.seed, 0),
        ("--msprobe-real-data", options.real_data, "auto"),
        ("--msprobe-baseline", options.baseline, None),
        ("--msprobe-explore", options.explore and options.explore.examples, None),
    ):
        words += [flag, str(value)] if value != default else []
    return shlex.join(words)


def _text(config: pytest.Config, name: str, default: str) -> str:
    return config.getoption(f"msprobe_{name}") or config.getini(f"msprobe_{name}") or default


def _choice(config: pytest.Config, name: str, allowed: tuple[str, ...], default: str | None) -> str | None:
    value = _text(config, name, default or "")
    if value and value not in allowed:
        raise pytest.UsageError(f"{_flag(name)} {value!r}: allowed are {', '.join(allowed)}")
    return value or None


def _number(
    config: pytest.Config, name: str, kind: Callable[[str], float], wanted: str, valid: Callable[[float], bool]
) -> float | None:
    text = _text(config, name, "")
    if not text:
        return None
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not valid(value):
        raise pytest.UsageError(f"{_flag(name)} {text!r}: wants {wanted}")
    return value


def _flag(name: str) -> str:
    return f"--msprobe-{name.replace('_', '-')}"


def _device(text: str, devices: DeviceRegistry) -> DeviceChoice:
    try:
        choice = parse_device(text)
        if choice.name != AUTO:
            devices.get(choice.name)
    except DeviceError as error:
        raise pytest.UsageError(f"--msprobe-device: {error}") from None
    return choice


def _policy(text: str, folder: Path) -> str:
    known = built_in_policies()
    if text in known:
        return text
    path = folder / text
    if not path.is_file():
        raise pytest.UsageError(
            f"--msprobe-policy {text!r}: neither a file nor a known policy; known are {', '.join(known)}"
        )
    return str(path)


def _folder(config: pytest.Config) -> Path | None:
    text: Any = config.getoption("msprobe_csv")
    if not text:
        return None
    path: Path = config.invocation_params.dir / text
    if path.exists() and not path.is_dir():
        raise pytest.UsageError(f"--msprobe-csv {text!r}: is a file; wants a folder")
    return path


def _journal(config: pytest.Config) -> Path | None:
    new, resumed = config.getoption("msprobe_journal"), config.getoption("msprobe_resume")
    if new and resumed:
        raise pytest.UsageError(
            "--msprobe-journal starts a journal and --msprobe-resume goes on with one: give one of them"
        )
    text: str | None = new or resumed
    return None if text is None else Path(config.invocation_params.dir / text)


def _outcomes(config: pytest.Config) -> tuple[str, ...]:
    outcomes = _patterns(config.getoption("msprobe_rerun"))
    for outcome in outcomes:
        if outcome not in OUTCOMES:
            raise pytest.UsageError(f"--msprobe-rerun {outcome!r}: allowed are {', '.join(OUTCOMES)}")
    if outcomes and not config.getoption("msprobe_resume"):
        raise pytest.UsageError("--msprobe-rerun says what to run again of a journal: give --msprobe-resume JOURNAL")
    return outcomes


def _patterns(texts: list[str]) -> tuple[str, ...]:
    return tuple(pattern for text in texts for pattern in re.split(r"[,\s]+", text) if pattern)
