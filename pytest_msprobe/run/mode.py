"""A kind of run: what is made of the dumps that its flag names.

A mode is one object that a plugin or ``conftest.py`` adds in ``pytest_msprobe_register_modes``; this package's own come
the same way. Nothing outside of a mode's folder knows it by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pytest

from pytest_msprobe.errors import OptionError
from pytest_msprobe.run.option_data import Row, add_rows, option_group

if TYPE_CHECKING:
    from msprobe_hooks.dump.reader import Dump

_PLUGIN = "msprobe-modes"
_METAVAR = "PATH"


@dataclass(frozen=True, slots=True)
class JournalFacts:
    """Facts that a resumed run must share with the one that began its journal: settings, and files besides dumps."""

    settings: Mapping[str, str]
    files: Mapping[str, Path] = field(default_factory=dict)


class Mode(Protocol):
    """A kind of run."""

    #: What a journal calls it.
    name: str
    #: The option that names its dumps, such as ``--msprobe-dump``, which may be repeated; and its help text.
    flag: str
    flag_help: str

    @property
    def shared_options(self) -> Collection[str]:
        """The options of `pytest_msprobe.run.shared_options` that it understands; its runs refuse the others."""

    def read_options(self, config: pytest.Config, *, is_chosen: bool) -> None:
        """Read and check the mode's other options, and keep them in the stash. Raises OptionError.

        ``is_chosen`` says whether this run is of this mode; if not, options that make no sense then are refused.
        """

    def needs_device(self, config: pytest.Config) -> bool:
        """Return whether items run on the device: it is then started before the first of them."""

    def open(self, config: pytest.Config, dumps: Mapping[Path, Any]) -> None:
        """Open what belongs to the dumps, in every process of the run. Raises a UserError or DumpError."""

    def header(self, config: pytest.Config) -> list[str]:
        """Return the header's lines: what is run, how, and on which dumps."""

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return the plugins that hear of every item, by name; they live in the controller only.

        One with a true attribute ``hears_finished`` also hears of what a resumed journal had finished.
        """

    def journal_facts(self, config: pytest.Config) -> JournalFacts:
        """Return what the journal's header holds besides mode, policy and dumps."""

    def items(self, file: pytest.File, dump: Any) -> Iterable[pytest.Item]:
        """Yield the items of a dump's collector, in recorded order; each is a `DumpItem`."""

    def rerun_words(self, config: pytest.Config) -> list[str]:
        """Return the options that a command needs to run one of the items again as here."""


class WholeMode(Mode, Protocol):
    """A mode that is registered as it is, as that of a ``conftest.py``: every start of pytest loads it."""

    def add_options(self, group: pytest.OptionGroup) -> None:
        """Add the mode's options but for its flag and those that it shares; the group has the mode's name."""


@runtime_checkable
class OwnFiles(Protocol):
    """Methods of a mode whose flag names something other than dumps; its items are `JudgedItem`.

    ``open`` and ``items`` then receive what ``read_file`` returned.
    """

    def find_files(self, folder: Path) -> list[Path]:
        """Return the files of a folder that are collected. Raises a UserError where there are none."""

    def read_file(self, path: Path) -> Any:
        """Read one of them. Raises a UserError where it cannot be used."""

    def label(self, path: Path) -> str:
        """Return what a file is called among the run's files, in words and after ``-k``."""


@runtime_checkable
class MergesRanks(Protocol):
    """Methods of a mode that can read the dumps of several ranks as one run."""

    def runs_of(self, config: pytest.Config, folder: Path) -> list[Path]:
        """Return the dumps below a folder that runs go by. Raises a UserError or DumpError where there are none."""

    def open_run(self, config: pytest.Config, path: Path) -> Dump:
        """Read the run that goes by a dump. Raises a UserError or DumpError where it cannot be used."""


@runtime_checkable
class ReadsFiles(Protocol):
    """Methods of a mode that lists the files it reads, so that its workers may run on hosts without them.

    It reads the dumps and the files of their tensor folders that its items name, and nothing else.
    """

    def files_beside(self, config: pytest.Config) -> Mapping[Path, Path]:
        """Return the other files that every worker reads, with the folder of tensors that belongs to each."""

    def folders_written(self, config: pytest.Config) -> Mapping[Path, int]:
        """Return the folders that items write files into, with the bytes that each may take."""


@dataclass(frozen=True, slots=True)
class DeclaredMode:
    """Facts of a mode, which is imported when a run is of it.

    ``home`` is its module and class, as in ``my_plugin.mode:MyMode``; ``options`` are the classes of fields that it has
    besides those that it shares, and ``parts`` returns those that extensions add.
    """

    name: str
    flag: str
    flag_help: str
    home: str
    shared_options: Collection[str] = ()
    options: Collection[type[Any]] = ()
    parts: Callable[[], Collection[type[Any]]] = tuple
    metavar: str = _METAVAR

    def rows(self) -> list[Row]:
        """Return what pytest's parser needs of the flag and of the options."""
        from pytest_msprobe.run.option_fields import rows

        flag = _flag_row(self.name, self.flag, self.flag_help, self.metavar)
        return [flag, *(row for options in self.options for row in rows(options, self.name))]

    def refuse(self, config: pytest.Config) -> None:
        """Raise OptionError where a run of another mode has one of the options."""
        from pytest_msprobe.run.option_fields import refuse_without

        for options in (*self.options, *self.parts()):
            refuse_without(config, options, f"{self.flag} {self.metavar}")

    def load(self) -> Mode:
        """Import the mode and make one."""
        module, _, name = self.home.partition(":")
        mode: Mode = getattr(import_module(module), name)()
        return mode


def _flag_row(name: str, flag: str, meaning: str, metavar: str = _METAVAR) -> Row:
    return {"name": flag, "help": meaning, "group": name, "metavar": metavar, "repeat": True}


class ModeRegistry:
    """The modes by name, and the options of runs of every mode.

    Each adds its options to pytest's as it comes, until the command line is parsed; those of this package's own modes,
    which come later, are in the files of `run.option_data`.
    """

    def __init__(self, parser: pytest.Parser | None = None) -> None:
        self.rows: list[Row] = []
        self._parser = parser
        self._of_plugins: frozenset[str] = frozenset()
        self._modes: dict[str, Mode | DeclaredMode] = {}
        self._default = ""

    def end_options(self) -> bool:
        """Add no options from now on: the command line is parsed. Return whether that is new.

        Modes that come now, this package's own, go before those that are there, of plugins.
        """
        is_new = self._parser is not None
        if is_new:
            self._parser, self._of_plugins = None, frozenset(self._modes)
        return is_new

    def add(self, mode: WholeMode | DeclaredMode, *, is_default: bool = False) -> None:
        """Make a mode known, or one that is declared and loaded when a run needs it.

        The default one is that of a run without any mode's flag. Raises ValueError where the name is taken.
        """
        if mode.name in self._modes:
            raise ValueError(f"mode {mode.name!r} is already registered; choose another name")
        self._modes[mode.name] = mode
        self._default = mode.name if is_default else self._default
        if isinstance(mode, DeclaredMode):
            self._add_rows(mode.rows())
            return
        self._add_rows([_flag_row(mode.name, mode.flag, mode.flag_help)])
        if self._parser is not None:
            mode.add_options(option_group(self._parser, mode.name))

    def add_options(self, options: type[Any], group: str) -> None:
        """Add a class of fields that runs of every mode have; ``group`` is a job of `run.option_data`."""
        from pytest_msprobe.run.option_fields import rows

        self._add_rows(rows(options, group))

    def _add_rows(self, rows: list[Row]) -> None:
        self.rows += rows
        if self._parser is not None:
            add_rows(self._parser, rows)

    @property
    def default(self) -> Mode:
        """The mode of a run without any mode's flag."""
        return self._loaded(self._default)

    def __iter__(self) -> Iterator[Mode | DeclaredMode]:
        return iter(sorted(self._modes.values(), key=lambda mode: mode.name in self._of_plugins))

    def _loaded(self, name: str) -> Mode:
        mode = self._modes[name]
        if isinstance(mode, DeclaredMode):
            mode = self._modes[name] = mode.load()
        return mode

    def read_options(self, config: pytest.Config, current: Mode) -> None:
        """Read the options of the run's mode and of the default one; others refuse theirs. Raises OptionError."""
        # Checks that tests make have the options of the default mode.
        self._loaded(self._default)
        for mode in self:
            if isinstance(mode, DeclaredMode):
                mode.refuse(config)
            else:
                mode.read_options(config, is_chosen=mode is current)

    def flagged(self, config: pytest.Config) -> list[tuple[Mode, tuple[str, ...]]]:
        """Return the modes whose flag the command line has, each with the dumps that it names.

        Where it names nothing to run, the ini setting replaces the default mode's flag.
        """
        dumps_by_mode = [(mode.name, tuple(config.getoption(destination(mode.flag)) or ())) for mode in self]
        if not any(dumps for _, dumps in dumps_by_mode) and config.args_source is not pytest.Config.ArgsSource.ARGS:
            dumps_by_mode = [(self._default, tuple(map(str, config.getini("msprobe_dumps") or ())))]
        return [(self._loaded(name), dumps) for name, dumps in dumps_by_mode if dumps]

    def chosen(self, config: pytest.Config) -> tuple[Mode, tuple[str, ...]]:
        """Return the mode of this run and its dumps. Raises OptionError where the command line asks for several."""
        flagged = self.flagged(config)
        if len(flagged) > 1:
            flags = " and ".join(mode.flag for mode, _ in flagged)
            raise OptionError(f"{flags} cannot be combined", remedy="pass one of them")
        return flagged[0] if flagged else (self.default, ())

    def require_check(self, mode: Mode, option: str) -> None:
        """Raise OptionError where an option of checks is passed to a run of another mode than the default."""
        if mode is not self.default:
            raise OptionError(f"{option} does not work with {mode.flag}", remedy=f"remove {option}")


def register_modes(pluginmanager: pytest.PytestPluginManager, parser: pytest.Parser) -> None:
    """Ask every plugin for its modes: those that are there, and each that comes later when it comes."""
    registry = ModeRegistry(parser)
    pluginmanager.register(registry, _PLUGIN)
    pluginmanager.hook.pytest_msprobe_register_modes.call_historic(kwargs={"registry": registry})


def reads_torch_files(mode: Mode) -> bool:
    """Return whether a mode may read files that torch saved: it then has a true attribute ``reads_torch_files``."""
    return bool(getattr(mode, "reads_torch_files", False))


def modes_of(config: pytest.Config) -> ModeRegistry:
    """Return the registry of this run."""
    registry = config.pluginmanager.get_plugin(_PLUGIN)
    assert isinstance(registry, ModeRegistry)
    return registry


def destination(flag: str) -> str:
    """Return the name under which pytest keeps an option's value."""
    return flag.removeprefix("--").replace("-", "_")
