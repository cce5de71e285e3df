"""The option ``--msprobe-perturb``; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_msprobe.modes.check.features import CheckFeature, FeatureOptions
from pytest_msprobe.run.option_fields import is_passed, one_of, option, read_fields

if TYPE_CHECKING:
    import pytest

    from pytest_msprobe.modes.check.follow_ups import FollowUp
    from pytest_msprobe.reports.summary import Tally
    from pytest_msprobe.run.options import Options

_FLAG = "--msprobe-perturb"

#: As msprobe_hooks.extensions.free_benchmark has them.
PERTURBATIONS = ("improve_precision", "add_noise", "bit_noise", "change_value", "no_change", "to_cpu")


@dataclass(frozen=True, slots=True)
class PerturbOptions(FeatureOptions):
    """The name of the perturbation of each call's inputs."""

    perturbation: str = option(
        _FLAG,
        "run each call once more with perturbed inputs, and warn if its result changes by more than msprobe's free "
        f"benchmark allows: {', '.join(PERTURBATIONS)} (default: no perturbation)",
        metavar="NAME",
        read=one_of(*PERTURBATIONS),
    )

    name = "perturb"
    needs_golden = True

    def journal_setting(self) -> str:
        """Return the name."""
        return self.perturbation

    def follow_up(self, options: Options) -> FollowUp:
        """Return the run with perturbed inputs."""
        from pytest_msprobe.extensions.free_benchmark.perturb import Perturb

        return Perturb(self.perturbation)

    def reporters(self, config: pytest.Config) -> Mapping[str, object]:
        """Return what writes ``free_benchmark.csv`` next to the other tables of ``--msprobe-csv``."""
        from pytest_msprobe.run.collection import dumps_key
        from pytest_msprobe.run.options import options_key

        csv = config.stash[options_key].csv
        if csv is None:
            return {}
        from pytest_msprobe.extensions.free_benchmark.perturb_table import FreeBenchmarkReport

        dumps = [*config.stash[dumps_key].keys()]
        return {"msprobe-csv-free-benchmark": FreeBenchmarkReport(csv, dumps, config.rootpath)}


class PerturbFeature(CheckFeature):
    """Perturbed inputs."""

    name = "perturb"
    options = PerturbOptions

    def read_options(self, config: pytest.Config) -> PerturbOptions | None:
        """Return the perturbation, None where nothing is perturbed. Raises OptionError."""
        return read_fields(config, PerturbOptions) if is_passed(config, _FLAG) else None

    def checks_only(self) -> Collection[str]:
        """Return the option."""
        return (_FLAG,)

    def tallies(self, *, in_detail: bool) -> Collection[Tally]:
        """Return what counts perturbed calls."""
        from pytest_msprobe.extensions.free_benchmark.perturb_table import PerturbedTally

        return (PerturbedTally(),)
