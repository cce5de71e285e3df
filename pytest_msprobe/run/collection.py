"""A dump becomes a collector, each of its API records an item."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from msprobe_hooks.dump.layout import find_dumps
from msprobe_hooks.dump.names import api_record, parse_api_name, split_direction
from msprobe_hooks.dump.reader import Dump, read_dump
from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.frameworks.registry import PYTORCH, missing_piece
from pytest_msprobe.modes.overflow.items import overflow_items
from pytest_msprobe.run.item import DumpItem, RecordItem
from pytest_msprobe.run.options import Mode, Options, options_key

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.pairs import Pair

dumps_key = pytest.StashKey[dict[Path, Dump]]()
pairs_key = pytest.StashKey["dict[Path, Pair]"]()


def open_dumps(config: pytest.Config, options: Options) -> dict[Path, Dump]:
    """Put the dumps of ``--msprobe-dump`` among pytest's arguments and read every dump that is an argument.

    Raises pytest.UsageError for the first file that cannot be used.
    """
    try:
        wanted = [argument for text in options.dumps for argument in _arguments(config, text)]
        if wanted:
            named = config.args_source is pytest.Config.ArgsSource.ARGS
            config.args = [*(config.args if named else ()), *wanted]
        paths = [_absolute(config, argument.partition("::")[0]) for argument in [*wanted, *config.args]]
        dumps = dict.fromkeys([*paths[: len(wanted)], *(path for path in paths if path.suffix == ".json")])
        return {path: _checkable(read_dump(path), options.mode) for path in dumps}
    except DumpError as error:
        raise pytest.UsageError(str(error)) from None


def first_framework(config: pytest.Config, options: Options) -> str:
    """Return the framework of the first dump that is named, before any is collected; PyTorch where none can be read."""
    texts = [*options.dumps, *(argument for argument in config.args if ".json" in argument)]
    try:
        path = next(argument.partition("::")[0] for text in texts for argument in _arguments(config, text))
        return read_dump(Path(path)).framework
    except (DumpError, StopIteration):
        # The run itself tells what is wrong with it.
        return PYTORCH


def open_pairs(config: pytest.Config, options: Options) -> dict[Path, Pair]:
    """Open the golden dumps of a comparison, by the target's path; nothing where none is asked for.

    Raises pytest.UsageError for the first file that cannot be used.
    """
    if options.compare is None:
        return {}
    from pytest_msprobe.modes.compare.opening import open_pairs
    from pytest_msprobe.modes.compare.policy import load_policy
    from pytest_msprobe.modes.compare.running import ShortWay

    config.pluginmanager.register(ShortWay(), "msprobe-short-way")
    dumps = config.stash[dumps_key]
    try:
        return open_pairs(dumps, options.compare, load_policy(options.policy))
    except DumpError as error:
        raise pytest.UsageError(str(error)) from None
    except ValueError as error:
        raise pytest.UsageError(f"--msprobe-policy: {error}") from None


def _checkable(dump: Dump, mode: Mode) -> Dump:
    missing = missing_piece(dump.framework) if mode == "check" else None
    if missing is not None:
        raise DumpError(f"{dump.path}: recorded with {dump.framework}, but {missing}")
    return dump


def _arguments(config: pytest.Config, text: str) -> list[str]:
    """Return pytest's arguments for a dump, a folder of dumps, or either with ``::`` and the name of one record."""
    name, *record = text.split("::", 1)
    path = _absolute(config, name)
    dumps = find_dumps(path) if path.is_dir() else [path]
    return ["::".join([str(dump), *record]) for dump in dumps]


def _absolute(config: pytest.Config, path: str) -> Path:
    # As pytest makes its arguments absolute: symbolic links stay.
    return Path(os.path.abspath(config.invocation_params.dir / path))  # noqa: PTH100


def collect_file(file_path: Path, parent: pytest.Collector) -> DumpFile | None:
    """Return a collector for a file that is one of the opened dumps."""
    dumps = parent.config.stash.get(dumps_key, {})
    if file_path not in dumps:
        return None
    # pytest gives every file outside of its rootdir the same, empty id.
    outside = not file_path.is_relative_to(parent.config.rootpath)
    return DumpFile.from_parent(parent, path=file_path, nodeid=file_path.as_posix() if outside else None)


class DumpFile(pytest.File):
    """One ``dump.json``; the run's mode says what its items are."""

    def collect(self) -> Iterable[DumpItem]:
        """Yield the items in recorded order."""
        return _COLLECTORS[self.config.stash[options_key].mode](self, self.config.stash[dumps_key][self.path])


def _checked_records(file: DumpFile, dump: Dump) -> Iterator[RecordItem]:
    """Yield an item for each API record; a call's backward item follows its forward item."""
    records = dump.records
    for name in dump.api_names:
        key, direction = split_direction(name)
        if direction == "backward" and api_record(key, "forward") in records:
            continue
        yield RecordItem.from_parent(file, name=name, dump=dump)
        backward = api_record(key, "backward")
        if direction == "forward" and backward in records:
            yield RecordItem.from_parent(file, name=backward, dump=dump)


def _compared_records(file: DumpFile, dump: Dump) -> Iterable[DumpItem]:
    """Return an item for each call of the target and the golden run."""
    from pytest_msprobe.modes.compare.items import compared_items

    options = file.config.stash[options_key].compare
    return compared_items(file, file.config.stash[pairs_key][file.path], quick=bool(options and options.quick))


_COLLECTORS: dict[Mode, Callable[[DumpFile, Dump], Iterable[DumpItem]]] = {
    "check": _checked_records,
    "overflow": overflow_items,
    "compare": _compared_records,
}


def select_items(config: pytest.Config, options: Options, items: list[pytest.Item]) -> None:
    """Deselect what ``--msprobe-only``, ``--msprobe-skip`` and ``--msprobe-unique`` leave out."""
    if not (options.only or options.skip or options.unique):
        return
    kept, deselected = list[pytest.Item](), list[pytest.Item]()
    seen: set[tuple[Any, ...]] = set()
    folded: set[tuple[Path, str]] = set()
    for item in items:
        wanted = not isinstance(item, DumpItem) or _is_listed(item.name, options)
        if wanted and options.unique and isinstance(item, RecordItem):
            wanted = not _is_repeated(item, seen, folded)
        (kept if wanted else deselected).append(item)
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept


def _is_listed(name: str, options: Options) -> bool:
    try:
        parsed = parse_api_name(name)
    except ValueError:
        return True
    spellings = (parsed.api, parsed.qualified_api)
    return (not options.only or _matches(spellings, options.only)) and not _matches(spellings, options.skip)


def _matches(spellings: Iterable[str], patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(spelling, pattern) for spelling in spellings for pattern in patterns)


def _is_repeated(item: RecordItem, seen: set[tuple[Any, ...]], folded: set[tuple[Path, str]]) -> bool:
    """Tell whether an earlier call was the same but for its tensors' values; a backward item follows its forward."""
    key, direction = split_direction(item.name)
    if direction == "backward":
        return (item.path, key) in folded
    try:
        body = msgspec.json.decode(item.dump.records[item.name])
        api = parse_api_name(item.name).qualified_api
        inputs = [body.get("input_args"), body.get("input_kwargs"), api_record(key, "backward") in item.dump.records]
    except (msgspec.DecodeError, ValueError, AttributeError):
        return False
    signature = (api, msgspec.json.encode(_without_values(inputs)))
    if signature in seen:
        folded.add((item.path, key))
        return True
    seen.add(signature)
    return False


_TENSOR_VALUES = re.compile(r"Max|Min|Mean|Norm|(Max|Min)_except_inf_nan|md5|data_name|datapath")


def _without_values(tree: Any) -> Any:
    if isinstance(tree, list):
        return [_without_values(item) for item in tree]
    if isinstance(tree, dict):
        is_tensor = "shape" in tree and "dtype" in tree
        return {
            key: _without_values(value)
            for key, value in tree.items()
            if not (is_tensor and _TENSOR_VALUES.fullmatch(key))
        }
    return tree
