"""Parts that extensions and plugins add to comparisons: kinds, names, transformations, layouts of ranks, graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pytest_msprobe.errors import OptionError
from pytest_msprobe.extensions import register

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.paths.recording import StepRank
    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.matching.name_translation import Translation
    from pytest_msprobe.modes.compare.measure.compared_sides import TensorTransformations
    from pytest_msprobe.modes.compare.options import CompareOptions
    from pytest_msprobe.modes.compare.rows import ComparedCall, ComparedCalls
    from pytest_msprobe.run.item import DumpItem
    from pytest_msprobe.run.options import Options


class PartOptions(Protocol):
    """Options of one part of a comparison, as they were read."""

    @property
    def of_calls(self) -> str:
        """The first option that was passed and says how calls are matched; empty where none was."""

    def words(self) -> list[str]:
        """Return the command-line words that ask for the same."""

    def settings(self) -> Mapping[str, str]:
        """Return what two runs must share for one to go on with the other's journal."""


class OptionSource(Protocol):
    """Options of one part of a comparison; a module with these functions is one."""

    def add_options(self, group: Any, /) -> None:
        """Add the options."""

    def read_options(self, config: pytest.Config, /) -> PartOptions:
        """Read and check the options. Raises OptionError."""

    def passed(self, config: pytest.Config, /) -> list[str]:
        """Return the names of the options that were passed."""


class OpenComparison(Protocol):
    """A comparison of a kind of its own, opened: it has its own pairs and items in place of calls."""

    def header(self, config: pytest.Config, /) -> list[str]:
        """Return what is compared with what."""

    def reporters(self, calls: ComparedCalls, compare: CompareOptions, options: Options, /) -> Mapping[str, object]:
        """Return the plugins that report, by name."""

    def other_files(self) -> Mapping[str, Path]:
        """Return all dumps that are read besides the one that the run goes by."""

    def items(self, file: pytest.File, dump: Dump, /) -> Iterable[DumpItem]:
        """Yield the items of the run."""


class ComparisonKind(Protocol):
    """A kind of comparison besides that of calls, such as that of a training with an inference engine."""

    def is_meant(self, options: CompareOptions, target: Path, /) -> bool:
        """Return whether two runs are compared in this way. Raises OptionError where options exclude each other."""

    def open_comparison(
        self, targets: Sequence[Path], options: CompareOptions, policy: ComparePolicy, /
    ) -> OpenComparison:
        """Open both runs. Raises OptionError or DumpError where one cannot be used."""


class SharedNames(Protocol):
    """Names that two runs share though each recorded its own, as those of two frameworks; read once for all pairs."""

    def meet(self, target: Dump, golden: Dump, values: Iterable[str], /) -> tuple[Dump, Dump, Translation]:
        """Return two dumps as they are compared, and how their names meet; ``values`` are in a data mapping."""

    def unused(self, dumps: Iterable[Dump], /) -> list[str]:
        """Return, in words, the entries of the user's files that none of the dumps had a use for."""


class TransformationSource(Protocol):
    """What reads transformations of recorded tensors; a module with these functions is one."""

    def of_file(self, path: Path | None, /) -> PartOptions:
        """Return the options that name this file."""

    def read(self, options: CompareOptions, config: pytest.Config | None, /) -> TensorTransformations | None:
        """Return the transformations of a run, None where there are none. Raises OptionError."""


class Layout(Protocol):
    """How the ranks of a run hold one model together, so that they are compared as one run."""

    def runs_of(self, dumps: Sequence[Path], /) -> list[Path]:
        """Return the dump of the first rank of each run. Raises DumpError where ranks do not fit."""

    def open_run(self, path: Path, /) -> Dump:
        """Read a run by the dump of its first rank. Raises DumpError."""

    def open_alone(self, path: Path, /) -> Dump:
        """Read a run that is compared with none. Raises DumpError."""

    def place_of(self, path: Path, /) -> StepRank:
        """Return step and data parallel rank of a run."""

    def ranks_of(self, path: Path, /) -> Sequence[Path]:
        """Return all dumps that a run is read from."""


@dataclass(frozen=True, slots=True, order=True)
class RunNote:
    """A remark on a value of a run; the summary has one line for all of the same ``words``, by their ``place``."""

    place: int
    words: str
    value: str


@dataclass(frozen=True, slots=True)
class Runs:
    """Two runs to be compared, and remarks on their values."""

    target: Dump
    golden: Dump
    notes: Sequence[RunNote] = ()


class MergedRuns(Protocol):
    """What merges the ranks of a run, and the options that name layouts; a module with these functions is one."""

    def add_options(self, group: Any, /) -> None:
        """Add ``--msprobe-target-layout`` and ``--msprobe-golden-layout``."""

    def passed(self, config: pytest.Config, /) -> list[str]:
        """Return the names of the options that were passed."""

    def read_layouts(self, config: pytest.Config, /) -> tuple[Layout | None, Layout | None]:
        """Return the layouts of target and golden run, None for ranks that are compared each. Raises OptionError."""

    def parse_layout(self, flag: str, text: str, folder: Path, /) -> Layout:
        """Read a layout as a user gives it to an option. Raises OptionError."""

    def whole_runs(self, target: Dump, golden: Dump, layouts: Sequence[Layout | None], /) -> Runs:
        """Return two runs with whole tensors in both; the layouts are those of target and golden run."""


class PageGraphs(Protocol):
    """The graphs of some pairs of dumps on the page of a comparison; calls are added as they are read."""

    def add(self, place: int, call: ComparedCall, /) -> None:
        """Colour what a call was compared as; ``place`` is its place among all calls of the page."""

    def data(self, pairs: Sequence[str], /) -> list[dict[str, Any]]:
        """Return what the page's scripts draw; ``pairs`` names the compared dumps."""


Drawing: TypeAlias = "Callable[[Sequence[DumpPair]], PageGraphs]"
OpenNames: TypeAlias = "Callable[[CompareOptions], SharedNames]"


class ComparisonRegistry:
    """The parts of comparisons by name; those of this package's extensions are there from the beginning."""

    def __init__(self) -> None:
        self.options: dict[str, OptionSource] = {}
        self.kinds: dict[str, ComparisonKind] = {}
        self.names: OpenNames | None = None
        self.transformations: TransformationSource | None = None
        self.merged_runs: MergedRuns | None = None
        self.drawing: Drawing | None = None
        register("pytest_msprobe_register_comparisons", self)

    def add_options(self, name: str, source: OptionSource) -> None:
        """Add options of the extension of this name."""
        self.options[name] = source

    def add_kind(self, name: str, kind: ComparisonKind) -> None:
        """Add a kind of comparison; the first that is meant is taken."""
        self.kinds[name] = kind

    def set_names(self, names: OpenNames) -> None:
        """Set what opens the names that two runs share."""
        self.names = names

    def set_transformations(self, source: TransformationSource) -> None:
        """Set what reads transformations of recorded tensors."""
        self.transformations = source

    def set_merged_runs(self, merged: MergedRuns) -> None:
        """Set what merges the ranks of a run."""
        self.merged_runs = merged

    def set_drawing(self, drawing: Drawing) -> None:
        """Set what draws the graphs of the page."""
        self.drawing = drawing

    def parse_layout(self, flag: str, text: str, folder: Path) -> Layout:
        """Read a layout as a user gives it to an option. Raises OptionError."""
        if self.merged_runs is None:
            raise OptionError(f"{flag} needs the extension merged_ranks", remedy="install it, or leave the option out")
        return self.merged_runs.parse_layout(flag, text, folder)

    def part_of_file(self, path: Path | None) -> tuple[PartOptions, ...]:
        """Return the options that name a file of transformations. Raises OptionError where nothing reads one."""
        if path is None:
            return ()
        if self.transformations is None:
            raise OptionError("transform needs the extension transformations", remedy="install it, or leave it out")
        return (self.transformations.of_file(path),)
