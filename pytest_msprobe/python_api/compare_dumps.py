"""Comparison of two recorded runs from a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe_hooks.dump.reader import open_dump
from msprobe_hooks.dump.recording_paths import find_dumps, home_of
from msprobe_hooks.messages import naming_keywords
from pytest_msprobe.devices.registry import AUTO, DeviceChoice, DeviceRegistry
from pytest_msprobe.errors import OptionError
from pytest_msprobe.modes.compare.items import result_of
from pytest_msprobe.modes.compare.judging.policy import load_policy
from pytest_msprobe.modes.compare.measure.own_metrics import CompareMetricRegistry
from pytest_msprobe.modes.compare.mode import CompareMode
from pytest_msprobe.modes.compare.opening import open_pairs, require_pairs, without_session
from pytest_msprobe.modes.compare.options import CompareOptions, with_mappings
from pytest_msprobe.modes.compare.registry import ComparisonRegistry
from pytest_msprobe.python_api.check_dump import CheckedRecord, Judgement, Records, judged, process_state
from pytest_msprobe.run.item import records_of_call
from pytest_msprobe.run.options import Options
from pytest_msprobe.run.setups import Setups

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.dump_pair import DumpPair
    from pytest_msprobe.modes.compare.measure.own_metrics import Metric
    from pytest_msprobe.modes.compare.rows import ComparedCall
    from pytest_msprobe.results.result import DirectionResult


@dataclass(frozen=True, slots=True)
class ComparedRecord(CheckedRecord):
    """The comparison of one call of two runs.

    Attributes:
        dump: The file of the target's dump.
        name: The record's name there, or the golden one of a call that the target lacks.
        outcome: ``pass``, ``warn``, ``fail`` or ``skip``, or why the comparison did not finish.
        result: The verdict and the values that differ.
        call: Every value on both sides, the golden partner, and whether the difference begins here (``call.cause``);
            None where a record could not be read.
    """

    call: ComparedCall | None


@naming_keywords
def compare_dumps(
    target: Path | str,
    golden: Path | str,
    *,
    policy: str = "default",
    fuzzy: bool = False,
    mapping: Path | str | None = None,
    transform: Path | str | None = None,
    metrics: Mapping[str, Metric] = {},
) -> Records[ComparedRecord]:
    """Compare two runs and give the result of each call in execution order.

    Verdicts are those of ``pytest --msprobe-compare TARGET --msprobe-golden GOLDEN``. Each call is compared when it is
    asked for. A dump without records yields nothing where its golden partner has none either, or is missing.

    Args:
        target: The run under test: a ``dump.json`` or a folder of steps and ranks.
        golden: The run to compare with.
        policy: As ``--msprobe-policy``, for comparisons.
        fuzzy: As the setting ``msprobe_fuzzy``.
        mapping: As ``--msprobe-mapping``.
        transform: As ``--msprobe-transform``.
        metrics: Metrics of your own by name, as ``pytest_msprobe_register_compare_metrics`` adds them.

    Returns:
        An iterator of the comparisons.

    Raises:
        DumpError: A file cannot be used, or no record matches another.
        OptionError: Another argument cannot be used.
    """
    target, golden = Path(target).absolute(), Path(golden).absolute()
    mapped, turning = (None if path is None else Path(path).absolute() for path in (mapping, transform))
    for name, path in (("golden", golden), ("mapping", mapped), ("transform", turning)):
        if path is not None and not path.exists():
            raise OptionError(f"{name}={str(path)!r}: no such file or folder")
    try:
        own = CompareMetricRegistry(metrics).metrics
    except ValueError as error:
        raise OptionError(f"metrics: {error}") from None
    try:
        loaded = load_policy(policy, own)
    except ValueError as error:
        raise OptionError(f"policy: {error}") from None
    dumps = {path: open_dump(path) for path in (find_dumps(target) if target.is_dir() else [target])}
    options = CompareOptions(golden=golden, fuzzy=fuzzy, parts=ComparisonRegistry().parts(transform=turning))
    options = with_mappings(options, [] if mapped is None else [mapped])
    pairs = open_pairs(dumps, options, loaded, without_session(options, own)).values()
    require_pairs(pairs, [*dumps])
    run = Options(CompareMode(), (str(target),), DeviceChoice(AUTO), policy=policy)
    total = sum(len(pair.orders) for pair in pairs)
    return Records(_compared(pairs, Setups(run, DeviceRegistry())), total)


@dataclass
class _Comparison:
    """One call to be compared; ``call`` is set once it has been."""

    pair: DumpPair
    name: str
    call: ComparedCall | None = None

    def judge(self) -> DirectionResult:
        """Compare the two sides. Raises DumpError where a record or a tensor file is unusable."""
        self.call = self.pair.compare(self.name)
        return result_of(self.call, self.pair)


def _compared(pairs: Iterable[DumpPair], setups: Setups) -> Iterator[ComparedRecord]:
    with process_state(setups) as state:
        for pair in pairs:
            dump = pair.target
            for name in pair.orders:
                comparison = _Comparison(pair, name)
                records = partial(records_of_call, dump, name)
                result = judged(Judgement(name, dump.path, comparison.judge, records), state)
                yield ComparedRecord(home_of(dump.path), name, result.outcome, result, comparison.call)
