"""Declaration of the comparison, and the parts that extensions and plugins add to it: kinds, names, layouts, graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from pytest_msprobe.errors import OptionError
from pytest_msprobe.installed_extensions import register
from pytest_msprobe.modes.compare.options import CompareOptions, PartOptions
from pytest_msprobe.run.mode import DeclaredMode
from pytest_msprobe.run.shared_options import GOLDEN, HTML, JSON, MAPPING, MODEL_CONFIG, XLSX

if TYPE_CHECKING:
    import pytest

    from msprobe_hooks.dump.reader import Dump
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.judging.policy import ComparePolicy
    from pytest_msprobe.modes.compare.matching.name_translation import Translation
    from pytest_msprobe.modes.compare.measure.compared_sides import TensorTransformations
    from pytest_msprobe.modes.compare.rows import ComparedCall, ComparedCalls
    from pytest_msprobe.modes.compare.runs import Layout, Runs
    from pytest_msprobe.run.item import DumpItem
    from pytest_msprobe.run.options import Options


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


class MergedRuns(Protocol):
    """Reader of the layouts of runs, which merges their ranks by them."""

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


#: What gives the layers of fed calls, which come with their places, as rows: name, error of what a layer was passed,
#: error on golden inputs, what is wrong first and the place of its call, None where nothing is.
FedLayers: TypeAlias = "Callable[[Iterable[tuple[int, ComparedCall]]], Sequence[Sequence[Any]]]"
Drawing: TypeAlias = "Callable[[Sequence[DumpPair]], PageGraphs]"
OpenNames: TypeAlias = "Callable[[CompareOptions], SharedNames]"
ReadTransformations: TypeAlias = "Callable[[CompareOptions, pytest.Config | None], TensorTransformations | None]"


class ComparisonRegistry:
    """The parts of comparisons by name; those of this package's extensions are there from the beginning."""

    def __init__(self) -> None:
        self.options: list[type[PartOptions]] = []
        self.kinds: dict[str, ComparisonKind] = {}
        self.names: OpenNames | None = None
        self.transformations: ReadTransformations | None = None
        self.merged_runs: MergedRuns | None = None
        self.drawing: Drawing | None = None
        self.fed_layers: FedLayers | None = None
        register("pytest_msprobe_register_comparisons", self)

    def add_options(self, options: type[PartOptions]) -> None:
        """Add the options of a part: a frozen dataclass."""
        if options not in self.options:
            self.options.append(options)

    def add_kind(self, name: str, kind: ComparisonKind) -> None:
        """Add a kind of comparison; the first that is meant is taken."""
        self.kinds[name] = kind

    def set_names(self, names: OpenNames) -> None:
        """Set what opens the names that two runs share."""
        self.names = names

    def set_transformations(self, read: ReadTransformations) -> None:
        """Set what reads transformations of recorded tensors: in a session those of its hooks too."""
        self.transformations = read

    def set_merged_runs(self, merged: MergedRuns) -> None:
        """Set what merges the ranks of a run."""
        self.merged_runs = merged

    def set_drawing(self, drawing: Drawing) -> None:
        """Set what draws the graphs of the page."""
        self.drawing = drawing

    def set_fed_layers(self, layers: FedLayers) -> None:
        """Set what gives the table of fed layers of the page."""
        self.fed_layers = layers

    def parse_layout(self, flag: str, text: str, folder: Path) -> Layout:
        """Read a layout as a user gives it to an option. Raises OptionError."""
        if self.merged_runs is None:
            raise OptionError(f"{flag} needs the extension merged_ranks", remedy="install it, or leave the option out")
        return self.merged_runs.parse_layout(flag, text, folder)

    def parts(self, **values: object) -> tuple[PartOptions, ...]:
        """Return the options of all parts with some of their fields set; a value of None is not set.

        Raises OptionError where no part has a field of a name.
        """
        values = {name: value for name, value in values.items() if value is not None}
        fields_of_parts = [{field.name for field in fields(part)} for part in self.options]  # type: ignore[arg-type]
        for name in values:
            if not any(name in names for names in fields_of_parts):
                raise OptionError(f"{name}: no extension that understands it is there", remedy="leave it out")
        return tuple(
            part(**{name: value for name, value in values.items() if name in names})
            for part, names in zip(self.options, fields_of_parts, strict=True)
        )


#: The comparison, which runs of other modes load in place of its mode.
COMPARE = DeclaredMode(
    name="compare",
    flag="--msprobe-compare",
    flag_help="compare this run with --msprobe-golden: a dump.json, or a folder of steps and ranks",
    home="pytest_msprobe.modes.compare.mode:CompareMode",
    shared_options=(GOLDEN, XLSX, HTML, JSON, MAPPING, MODEL_CONFIG),
    options=(CompareOptions,),
    parts=lambda: ComparisonRegistry().options,
)
