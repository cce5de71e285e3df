"""Collection: dumps become collectors, their records items, deselected ones are left out; paths that a user names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from msprobe_hooks.dump.names import parse_api_name, split_direction
from msprobe_hooks.dump.reader import Dump, open_dump
from msprobe_hooks.dump.recording_paths import dump_at, find_dumps, home_of
from msprobe_hooks.errors import DumpError
from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.engine.framework_names import PYTORCH
from pytest_msprobe.errors import USER_ERRORS, OptionError
from pytest_msprobe.reports.markdown import label, labels_key
from pytest_msprobe.reports.text import printable
from pytest_msprobe.run.hosts import to_controller_paths
from pytest_msprobe.run.item import JudgedItem
from pytest_msprobe.run.item_bases import fast_path_key
from pytest_msprobe.run.mode import MergesRanks, OwnFiles
from pytest_msprobe.run.options import Options, options_key

if TYPE_CHECKING:
    from collections.abc import Hashable


def absolute(config: pytest.Config, path: str) -> Path:
    """Return where a path is, as pytest makes its arguments absolute: symbolic links stay."""
    return Path(os.path.abspath(config.invocation_params.dir / path))  # noqa: PTH100


def make_folder(flag: str, folder: Path) -> None:
    """Make the folder that an option names now, so that a wrong one costs no run. Raises OptionError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"{flag} {str(folder)!r}: {error.strerror}") from None


#: What the run's files were read into: dumps, but for a mode of `OwnFiles`.
dumps_key = pytest.StashKey[dict[Path, Any]]()
_homes_key = pytest.StashKey[set[Path]]()


def open_dumps(config: pytest.Config, options: Options) -> dict[Path, Any]:
    """Add the dumps that the mode's flag names to pytest's arguments and read every dump that is an argument.

    A ``.json`` among the arguments that does not begin as a dump does is left to other plugins that collect such files.
    Where the mode has files of its own, or merges ranks, it finds and reads those. Raises DumpError, or what the mode
    raises, for the first file that cannot be used.
    """
    config.stash.setdefault(fast_path_key, False)
    mode = options.mode
    own = mode if isinstance(mode, OwnFiles) else None
    find = find_dumps if own is None else own.find_files
    read: Callable[[Path], Any] = open_dump if own is None else own.read_file
    if isinstance(mode, MergesRanks):
        find, read = partial(mode.runs_of, config), partial(mode.open_run, config)
    arguments = [argument for text in options.dumps for argument in _arguments(config, text, find)]
    if arguments:
        named = config.args_source is pytest.Config.ArgsSource.ARGS
        config.args = [*(config.args if named else ()), *arguments]
    paths = [absolute(config, argument.partition("::")[0]) for argument in [*arguments, *config.args]]
    dumps = dict.fromkeys(paths[: len(arguments)] if own else [*paths[: len(arguments)], *filter(_may_be_dump, paths)])
    config.stash[labels_key] = label(dumps) if own is None else {path: own.label(path) for path in dumps}
    config.stash[_homes_key] = {home_of(path) for path in dumps}
    return {path: read(path) for path in dumps}


# A dump says what it is before its data.
_BEGINNING = re.compile(rb'\s*\{[^{}\[\]]*"(task|level|dump_data_dir)"\s*:')


def _may_be_dump(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    try:
        with open_regular(path) as file:
            return _BEGINNING.match(file.read(4096)) is not None
    except OSError:
        # Why it cannot be read is reported as for any dump.
        return True


def require_calls(dumps: Iterable[Dump]) -> None:
    """Raise DumpError for a recording of level debug: what a user saved by name is no call."""
    for dump in dumps:
        if dump.level == "debug":
            raise DumpError(
                f"{dump.path}: level debug: saved variables, no calls to check; compare two such dumps with "
                "--msprobe-compare and --msprobe-golden"
            )


def first_framework(config: pytest.Config, options: Options) -> str:
    """Return the framework of the first dump that is named, before any is collected; PyTorch where none can be read."""
    texts = [*options.dumps, *(argument for argument in config.args if ".json" in argument)]
    try:
        path = next(argument.partition("::")[0] for text in texts for argument in _arguments(config, text, find_dumps))
        return open_dump(Path(path)).framework
    except (DumpError, StopIteration):
        # The run itself reports what is wrong with it.
        return PYTORCH


def _arguments(config: pytest.Config, text: str, find: Callable[[Path], list[Path]]) -> list[str]:
    """Return pytest's arguments for a dump, a folder of dumps, or either with ``::`` and the name of one record."""
    name, *record = text.split("::", 1)
    path = absolute(config, name)
    dumps = find(path) if path.is_dir() else [path]
    for dump in dumps:
        if "[" in str(dump) or "::" in str(dump):
            raise DumpError(f"{dump}: pytest takes [ and :: in a path for parts of an id; rename the file or folder")
    return ["::".join([str(dump), *record]) for dump in dumps]


def collect_directory(path: Path, parent: pytest.Collector) -> KernelsFolder | None:
    """Return a collector for a folder that is one dump, of kernels, where it is looked for."""
    is_dump = path in parent.config.stash.get(_homes_key, ())
    return KernelsFolder.from_parent(parent, path=path) if is_dump else None


def collect_file(file_path: Path, parent: pytest.Collector) -> DumpFile | None:
    """Return a collector for a file that is one of the opened dumps."""
    dumps = parent.config.stash.get(dumps_key, {})
    if file_path not in dumps:
        return None
    mode = parent.config.stash[options_key].mode
    return DumpFile.from_parent(
        parent,
        path=file_path,
        name=mode.label(file_path) if isinstance(mode, OwnFiles) else None,
        nodeid=_id_of(parent.config, file_path),
    )


def dump_of_id(config: pytest.Config, nodeid: str) -> Path:
    """Return the dump of an item by its id."""
    dumps = config.stash[dumps_key]
    return dump_at(config.rootpath / nodeid.partition("::")[0], dumps)


def _id_of(config: pytest.Config, file: Path) -> str | None:
    """Return the id of a dump, None where it is the file's own.

    A folder that is one dump goes by one of its files, which has nothing to do with the items. pytest gives every file
    outside of its rootdir the same, empty id.
    """
    home = file if isinstance(config.stash[options_key].mode, OwnFiles) else home_of(file)
    if not file.is_relative_to(config.rootpath):
        outside: str | None = to_controller_paths(config, home.as_posix())
        return outside
    return None if home == file else str(home.relative_to(config.rootpath).as_posix())


class KernelsFolder(pytest.Directory):
    """A folder of kernels' files, of which there may be tens of thousands: only what leads to the dump is collected."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Yield the collector of the file that the dump goes by, or of the folder that it is in."""
        for file in self.config.stash[dumps_key]:
            if home_of(file) == self.path:
                child = self.path / file.relative_to(self.path).parts[0]
                if child == file:
                    yield from self.ihook.pytest_collect_file(file_path=child, parent=self)
                else:
                    yield self.ihook.pytest_collect_directory(path=child, parent=self)


class DumpFile(pytest.File):
    """One ``dump.json``, or what replaces it; the run's mode says what its items are."""

    #: Plugins ask an item's parent for its Python object; as a text file of doctests for pytest, a dump has none.
    obj = None

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return what is wrong with the dump or with what belongs to it, as one text."""
        return (
            printable(str(excinfo.value)) if isinstance(excinfo.value, USER_ERRORS) else super().repr_failure(excinfo)
        )

    def collect(self) -> Iterable[pytest.Item]:
        """Yield the items in recorded order."""
        return self.config.stash[options_key].mode.items(self, self.config.stash[dumps_key][self.path])


def select_items(config: pytest.Config, options: Options, items: list[pytest.Item]) -> None:
    """Deselect what ``--msprobe-only``, ``--msprobe-skip`` and ``--msprobe-unique`` leave out."""
    if not (options.only or options.skip or options.unique):
        return
    selected, deselected = list[pytest.Item](), list[pytest.Item]()
    signatures: set[Hashable] = set()
    repeated: set[tuple[Path, str]] = set()
    for item in items:
        is_selected = not isinstance(item, JudgedItem) or is_listed(item.name, options)
        if is_selected and options.unique and isinstance(item, JudgedItem):
            is_selected = not _is_repeated(item, signatures, repeated)
        (selected if is_selected else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = selected


def is_listed(name: str, options: Options) -> bool:
    """Return whether ``--msprobe-only`` and ``--msprobe-skip`` let an API record run; any other item runs."""
    try:
        parsed = parse_api_name(name)
    except ValueError:
        return True
    spellings = (parsed.api, parsed.qualified_api)
    return (not options.only or _matches(spellings, options.only)) and not _matches(spellings, options.skip)


def _matches(spellings: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(spelling, pattern) for spelling in spellings for pattern in patterns)


def _is_repeated(item: JudgedItem, signatures: set[Hashable], repeated: set[tuple[Path, str]]) -> bool:
    """Return whether an earlier call was the same; a call's other items follow the one that has its signature."""
    call = (item.path, split_direction(item.name)[0])
    signature = item.signature()
    if signature is None:
        return call in repeated
    if signature in signatures:
        repeated.add(call)
        return True
    signatures.add(signature)
    return False
