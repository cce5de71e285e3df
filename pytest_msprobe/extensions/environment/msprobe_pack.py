"""msprobe's ``config_check_pack.zip``, read in place, and the facts of a rank's start in either format."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias
from zipfile import BadZipFile, ZipFile

import msgspec

from msprobe_hooks.errors import StartError
from msprobe_hooks.extensions.environment.environment import (
    COMMAND_LINE,
    allowed_variables,
    arguments_without_secrets,
    normalized,
)
from msprobe_hooks.extensions.environment.start_file import RandomCalls, Started, TensorFact
from msprobe_hooks.json_decoding import JsonError, JsonFormError, decode_json
from msprobe_hooks.regular_files import open_regular
from pytest_msprobe.extensions.environment import launch_scripts

#: A text, a number or a list of these; or what is known of a tensor.
Value: TypeAlias = Any

#: The sections, in the order in which what is wrong explains what comes later.
SECTIONS = (
    *("hyperparameters", "arguments", "variables", "packages", "switches", "seeds", "random", "batches", "weights"),
    "buffers",
)
STEPPED = frozenset({"batches", "weights", "buffers"})


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of one rank; a section that was not recorded is absent.

    Of sections with steps, names begin with ``step<n>/``. ``random`` are calls by function, of those that were
    ``watched``. ``is_whole`` says that a section has all that there was: what msprobe packs has no buffers, digests or
    values other than tensors. ``problems`` are sentences.
    """

    rank: int
    sections: Mapping[str, Mapping[str, Value]]
    random: Mapping[str, list[RandomCalls]] | None = None
    watched: frozenset[str] = frozenset()
    is_whole: bool = True
    problems: list[str] = field(default_factory=list)

    @property
    def known(self) -> set[str]:
        """The sections that there are."""
        return {*self.sections, *(["random"] if self.random is not None else [])}


def facts_of(started: Started) -> Facts:
    """Return the facts of what our own line wrote."""
    problems = list(started.problems)
    sections: dict[str, Mapping[str, Value] | None] = {
        "variables": started.variables,
        "packages": started.packages,
        "switches": started.switches,
        "seeds": started.seeds,
        "batches": by_step(started.batches),
        "weights": by_step(started.weights),
        "buffers": by_step(started.buffers),
        **_settings(started, problems),
    }
    if started.world is not None and started.switches is not None:
        sections["switches"] = {**started.switches, "ranks": str(started.world)}
    present = {name: facts for name, facts in sections.items() if facts is not None}
    return Facts(started.rank, present, started.random, frozenset(started.watched), problems=problems)


def by_step(steps: Mapping[int, Mapping[str, Value]] | None) -> dict[str, Value] | None:
    """Return facts of several steps under names that begin with the step."""
    if steps is None:
        return None
    return {f"step{step}/{name}": value for step, facts in sorted(steps.items()) for name, value in facts.items()}


def tensors(facts: Mapping[str, Value]) -> Iterator[str]:
    """Yield the names of facts that are tensors."""
    return (name for name, value in facts.items() if isinstance(value, TensorFact))


def _settings(started: Started, problems: list[str]) -> dict[str, Mapping[str, Value] | None]:
    """Return what scripts and YAML files say, and what the command line and the script itself gave."""
    texts = dict(started.texts or {})
    line = texts.pop(COMMAND_LINE, None)
    files: dict[str, Value] = {}
    for name, text in texts.items():
        try:
            launch_scripts.merge(files, launch_scripts.of_text(name, text))
        except ValueError as error:
            problems.append(f"{name} cannot be read as settings: {error}")
    arguments = launch_scripts.of_command_line(line) if line is not None else {}
    if started.arguments is not None:
        settings = launch_scripts.flat(started.arguments)
        # The option --batch-size is the argument batch_size.
        spelled = {name: name.replace("-", "_") for name in arguments}
        arguments = {spelled[name] if spelled[name] in settings else name: value for name, value in arguments.items()}
        launch_scripts.merge(arguments, settings)
    has_given = line is not None or started.arguments is not None
    return {"hyperparameters": files if texts else None, "arguments": arguments if has_given else None}


_STEPPED = re.compile(r"(dataset|weights)/step([0-9]{1,9})/rank([0-9]{1,9})/(?:dataset|weight)\.json")
_RANDOM = re.compile(r"random/rank([0-9]{1,9})\.json")
_STATISTICS = ("max", "min", "mean", "norm")
_NUMBER: Any = float | None
_SECTIONS = {"dataset": "batches", "weights": "weights"}
# Python's lists take some twenty times as much memory as their JSON.
_LARGEST, _LARGEST_FILE, _LARGEST_SETTINGS = 256 * 2**20, 64 * 2**20, 4 * 2**20
_DEEPEST = 100

#: The random functions that msprobe counts.
WATCHED = frozenset(
    {
        *(f"random.{name}" for name in ("random", "randint", "uniform", "choice")),
        *(f"np.random.{name}" for name in ("rand", "randint", "choice", "normal")),
        *(f"torch.{name}" for name in ("rand", "randint", "randn", "rand_like", "randint_like", "randn_like")),
        "torch.manual_seed",
        *(f"torch.Tensor.{name}" for name in ("exponential_", "geometric_", "log_normal_", "cauchy_")),
        *(f"mindspore.ops.{name}" for name in ("rand", "randint", "randn")),
        "mindspore.manual_seed",
    }
)


def read_pack(path: Path) -> dict[int, Facts]:
    """Return the facts of each rank; what no rank owns is the first one's. Raises StartError."""
    try:
        with open_regular(path) as file, ZipFile(file) as archive:
            return _Pack(path, archive).facts()
    except OSError as error:
        raise StartError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, UnicodeDecodeError) as error:
        raise StartError(f"{path}: not a complete zip archive: {error}; copy or pack it again") from None


class _Pack:
    def __init__(self, path: Path, archive: ZipFile) -> None:
        self._path = path
        self._archive = archive
        for entry in archive.infolist():
            place = PurePosixPath(entry.filename.replace("\\", "/"))
            if place.is_absolute() or ".." in place.parts:
                raise StartError(f"{path}: entry {entry.filename!r} leads out of the archive; do not use it")
        if sum(entry.file_size for entry in archive.infolist()) > _LARGEST:
            raise StartError(f"{path}: unpacks to more than {_size(_LARGEST)}, more than any pack does; do not use it")
        self._names = archive.namelist()

    def facts(self) -> dict[int, Facts]:
        """Return the facts by rank."""
        steps: dict[int, dict[str, dict[int, Mapping[str, Value]]]] = {}
        for name in self._names:
            if match := _STEPPED.fullmatch(name):
                section, step, rank = _SECTIONS[match[1]], int(match[2]), int(match[3])
                leaves = self._tensors(name, is_flat=section == "weights")
                steps.setdefault(rank, {}).setdefault(section, {})[step] = leaves
        random = {int(match[1]): self._random(name) for name in self._names if (match := _RANDOM.fullmatch(name))}
        shared = self._shared()
        ranks = sorted({*steps, *random}) or [0]
        if not steps and not random and not shared:
            raise StartError(f"{self._path}: not a pack of msprobe config_check; name a config_check_pack.zip")
        return {
            rank: Facts(
                rank,
                {
                    **(shared if rank == ranks[0] else {}),
                    **{
                        section: by_step(leaves_by_step) or {}
                        for section, leaves_by_step in steps.get(rank, {}).items()
                    },
                },
                random.get(rank),
                WATCHED,
                is_whole=False,
            )
            for rank in ranks
        }

    def _shared(self) -> dict[str, Mapping[str, Value]]:
        sections: dict[str, Mapping[str, Value]] = {}
        if "env" in self._names:
            # msprobe packs every variable: what is not allowed is not looked at here either.
            sections["variables"] = allowed_variables(within=self._typed("env", dict[str, str]))
        if "pip" in self._names:
            lines = self._read("pip").decode("utf-8", "backslashreplace").splitlines()
            # Of a package that is listed twice, the first is the one that is imported.
            sections["packages"] = {
                normalized(name): version for name, _, version in (line.partition("=") for line in reversed(lines))
            }
        for file, section in (("static", "hyperparameters"), ("dynamic", "arguments")):
            name = f"hyperparameters/hyperparameters_{file}.json"
            if name in self._names:
                settings = arguments_without_secrets(self._typed(name, dict[str, Any], _LARGEST_SETTINGS))
                sections[section] = {key: launch_scripts.as_value(value) for key, value in settings.items()}
        return sections

    def _random(self, name: str) -> dict[str, list[RandomCalls]]:
        calls: dict[str, list[RandomCalls]] = self._typed(name, dict[str, list[RandomCalls]])
        return calls

    def _tensors(self, name: str, *, is_flat: bool) -> dict[str, Value]:
        try:
            # The file is valid as a whole, or refused.
            tree = decode_json(self._read(name), msgspec.Raw)
            return _tensors(tree) if is_flat else _batch(tree)
        except JsonError as error:
            raise StartError(f"{self._path}: {name}: {error}") from None

    def _typed(self, name: str, kind: Any, largest: int | None = None) -> Any:
        try:
            return decode_json(self._read(name, largest), kind, strict=False)
        except JsonFormError as error:
            raise StartError(f"{self._path}: {name}: not as msprobe writes it: {error}") from None
        except JsonError as error:
            raise StartError(f"{self._path}: {name}: {error}") from None

    def _read(self, name: str, largest: int | None = None) -> bytes:
        largest = _LARGEST_FILE if largest is None else largest
        if self._archive.getinfo(name).file_size > largest:
            raise StartError(
                f"{self._path}: {name} unpacks to more than {_size(largest)}, which msprobe never writes; do not use it"
            )
        return self._archive.read(name)


def _size(count: int) -> str:
    return f"{count >> 20} MiB"


# What is not a tensor is never made an object of, whatever it holds.


def _tensors(tree: msgspec.Raw) -> dict[str, Value]:
    """Return the weights of a step. Raises JsonError."""
    by_name = {name: _tensor(_fields(value)) for name, value in _fields(tree).items()}
    return {name: value for name, value in by_name.items() if value is not None}


def _batch(tree: msgspec.Raw, path: str = "", depth: int = 0) -> dict[str, Value]:
    """Return the tensors of a step's arguments, by place. Raises JsonError."""
    fields = _fields(tree)
    tensor = _tensor(fields)
    if tensor is not None:
        return {path: tensor}
    by_place: dict[str, Value] = {}
    if depth < _DEEPEST:
        for key, value in fields.items():
            by_place |= _batch(value, f"{path}.{key}" if path else key, depth + 1)
    return by_place


def _fields(tree: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the fields of an object, none of anything else. Raises JsonError."""
    try:
        return decode_json(tree, dict[str, msgspec.Raw])
    except JsonFormError:
        return {}


def _tensor(fields: Mapping[str, msgspec.Raw]) -> TensorFact | None:
    if fields.keys() != {*_STATISTICS}:
        return None
    try:
        return TensorFact(*(decode_json(fields[name], _NUMBER, strict=False) for name in _STATISTICS))
    except JsonFormError:
        return None
