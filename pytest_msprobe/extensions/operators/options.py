"""The option ``--msprobe-operators``, and the dumps that a run with it makes; nothing here imports torch."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.errors import CommandError, OptionError
from pytest_msprobe.extensions.operators.sweep import (
    FRAMEWORKS,
    SAMPLES,
    TASKS,
    Task,
    dtypes_of,
    folder_name,
    read_sweep,
)
from pytest_msprobe.run.option_fields import existing_file, number, one_of, option, read_fields, setting
from pytest_msprobe.run.usage_errors import usage_errors

FLAG = "--msprobe-operators"
# The command in a process of its own: torch's database sets switches of torch, and an operator may crash.
_PROGRAM = "import sys; from pytest_msprobe.commands.main import main; sys.exit(main(sys.argv[1:]))"
_CACHE = "msprobe-operators"

# The key under which workers get the paths.
_INPUT = "msprobe_operators"


def _dtypes(config: pytest.Config, name: str, text: str) -> tuple[str, ...]:
    try:
        return tuple(dtypes_of([text]))
    except CommandError as error:
        raise OptionError(f"{name}: {error}") from None


@dataclass(frozen=True, slots=True)
class OperatorsOptions:
    """Operators that a run records and checks: in which dtypes, and which of them."""

    dtypes: tuple[str, ...] = option(
        FLAG,
        "record operators in these dtypes, such as bfloat16,float16, and check them; framework, names, samples "
        "and files of operators are settings (default: none)",
        metavar="DTYPES",
        read=_dtypes,
        default=(),
        rerun=False,
        journal=False,
    )
    framework: str = setting(
        "msprobe_operator_framework",
        "whose operators --msprobe-operators records: torch or mindspore (default: torch)",
        read=one_of(*FRAMEWORKS),
        default=FRAMEWORKS[0],
        rerun=False,
        journal=False,
    )
    names: tuple[str, ...] = setting(
        "msprobe_operator_names",
        "names or patterns of the operators of --msprobe-operators, such as nn.functional.* (default: all)",
        kind="args",
        rerun=False,
        journal=False,
    )
    samples: int = setting(
        "msprobe_operator_samples",
        f"at most so many calls of each operator of --msprobe-operators (default: {SAMPLES})",
        read=number(int, "a whole number from 1 on", lambda value: value >= 1),
        default=SAMPLES,
        rerun=False,
        journal=False,
    )
    task: Task = setting(
        "msprobe_operator_task",
        "whether --msprobe-operators checks with the database's inputs, tensor, or draws others, statistics (default: "
        "tensor)",
        read=one_of(*TASKS),
        default="tensor",
        rerun=False,
        journal=False,
    )
    files: tuple[Path, ...] = setting(
        "msprobe_operator_files",
        "YAML files of other operators for --msprobe-operators (default: none)",
        kind="paths",
        read=existing_file,
        rerun=False,
        journal=False,
    )


class RecordedOperators:
    """The dumps that this run has recorded, or found recorded: shown in the header, and sent to workers."""

    def __init__(self, dumps: Sequence[Path]) -> None:
        self._dumps = dumps

    def pytest_report_header(self) -> list[str]:
        """Return a line on each dump."""
        return [f"msprobe: {read_sweep(dump / 'dump.json')}" for dump in self._dumps]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Send a worker the paths, which it cannot know."""
        node.workerinput[_INPUT] = [str(dump) for dump in self._dumps]


def add_dumps(config: pytest.Config) -> None:
    """Add the dumps of the operators to those that the command line names; the controller records what is not there.

    They are kept in pytest's cache, so that a resumed run and the command of a failure find them again; in a folder
    that the run removes where there is no cache.
    """
    dumps = getattr(config, "workerinput", {}).get(_INPUT, ())
    if not hasattr(config, "workerinput"):
        with usage_errors():
            dumps = _recorded(config, read_fields(config, OperatorsOptions))
        config.pluginmanager.register(RecordedOperators(dumps), "msprobe-operators")
    config.option.msprobe_dump = [*config.option.msprobe_dump, *map(str, dumps)]


def _recorded(config: pytest.Config, options: OperatorsOptions) -> list[Path]:
    """Return the folder of the dump of each dtype. Raises OptionError where one cannot be recorded."""
    folder = _folder(config, options)
    dumps = {dtype: folder / folder_name(dtype, options.task) for dtype in options.dtypes}
    missing = [dtype for dtype, dump in dumps.items() if not dump.exists()]
    if missing:
        _show(config, f"msprobe: recording operators in {', '.join(missing)}")
        _record(config, options, missing, folder)
    return [*dumps.values()]


def _folder(config: pytest.Config, options: OperatorsOptions) -> Path:
    """Return the folder of the dumps, one for each version and choice of operators."""
    if not config.pluginmanager.hasplugin("cacheprovider"):
        folder = tempfile.mkdtemp(prefix=f"{_CACHE}-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        return Path(folder)
    choice = hashlib.sha256(repr((options.names, [path.read_bytes() for path in options.files])).encode())
    # The folder is part of every test's id.
    versions = f"{options.framework}{_version(options.framework)}-{_version('pytest-msprobe')}"
    name = f"{versions}-{options.samples}-{choice.hexdigest()[:6]}"
    assert config.cache is not None
    return config.cache.mkdir(_CACHE) / name


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _record(config: pytest.Config, options: OperatorsOptions, dtypes: Sequence[str], folder: Path) -> None:
    """Run the command, and move what it wrote to its place when it is whole. Raises OptionError with its message."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="part-", dir=folder) as part:
        words = ["--dtype", ",".join(dtypes), "--task", options.task, "--samples", str(options.samples), "-o", part]
        words += ["--framework", options.framework]
        words += [word for name in options.names for word in ("--op", name)]
        words += [word for path in options.files for word in ("--file", str(path))]
        command = [sys.executable, "-c", _PROGRAM, "operators", *words]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, check=False, cwd=config.invocation_params.dir
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
            problem = lines[-1].removeprefix("pytest-msprobe: ")
            raise OptionError(f"{FLAG} {','.join(dtypes)}: {problem}" + _ending(done.returncode))
        for dump in Path(part).iterdir():
            try:
                dump.rename(folder / dump.name)
            except OSError:
                # Another run was first.
                if not (folder / dump.name).exists():
                    raise


def _ending(status: int) -> str:
    return f" (the recording died of signal {-status})" if status < 0 else ""


def _show(config: pytest.Config, line: str) -> None:
    """Print a line at once: recording takes a while, and pytest captures what is printed before its header."""
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is None or config.get_verbosity() < 0:
        return
    with capture.global_and_fixture_disabled():
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
