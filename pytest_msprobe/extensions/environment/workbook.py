"""``result.xlsx`` in the sheets of msprobe's configuration check, and sheets for what only we know."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msprobe_hooks.extensions.environment.start_file import RandomCalls, TensorFact
from pytest_msprobe.extensions.environment.fact_pairs import Pair
from pytest_msprobe.extensions.environment.judging import are_equal, judge_pair
from pytest_msprobe.extensions.environment.msprobe_pack import Value
from pytest_msprobe.reports.text import printable

FILE = "result.xlsx"

Row: TypeAlias = list[Any]
#: A pair with the rank that it is of.
Ranked: TypeAlias = tuple[int, Pair]

_DIFFS = [f"{name}_relative_diff" for name in ("max", "min", "mean", "norm")]
_SUMMARY = ["filename", "pass_check"]
# What a cell of a workbook can hold.
_LONGEST = 32_767


def write_result(path: Path, pairs: Sequence[Ranked]) -> None:
    """Write the workbook: a summary, and a sheet for each section that both sides have. Raises OSError."""
    import xlsxwriter

    sheets = [(name, titles, rows) for name, (titles, rows) in _sheets(pairs).items()]
    summary = [[name, _check(name, pairs)] for name, _, _ in sheets]
    with xlsxwriter.Workbook(str(path)) as book:
        for name, titles, rows in [("summary", _SUMMARY, summary), *sheets]:
            sheet = book.add_worksheet(name)
            for place, row in enumerate([titles, *rows]):
                for column, value in enumerate(row):
                    # As text, so that no cell becomes a formula or a link.
                    if isinstance(value, str):
                        sheet.write_string(place, column, printable(value)[:_LONGEST])
                    elif value is not None:
                        sheet.write(place, column, value)


def _sheets(pairs: Sequence[Ranked]) -> dict[str, tuple[list[str], list[Row]]]:
    sheets = {}
    for name, (sections, titles, rows) in _LAYOUT.items():
        own = [(rank, pair) for rank, pair in pairs if pair.section in sections]
        if own:
            sheets[name] = (titles, [row for rank, pair in own for row in rows(rank, pair)])
    return sheets


def _check(sheet: str, pairs: Iterable[Ranked]) -> str:
    sections = _LAYOUT[sheet][0]
    outcomes = {judge_pair(pair).outcome for _, pair in pairs if pair.section in sections}
    return "error" if "fail" in outcomes else "warning" if "warn" in outcomes else "pass"


def _level(pair: Pair) -> str:
    return "error" if judge_pair(pair).outcome == "fail" else "warning"


def _variable(rank: int, pair: Pair) -> list[Row]:
    if are_equal(pair):
        return []
    golden = pair.golden_name or pair.name
    return [
        [
            golden if pair.golden is not None else "only cmp has this env",
            pair.name if pair.target is not None else "only bench has this env",
            _cell(pair.golden),
            _cell(pair.target),
            _level(pair),
        ]
    ]


def _package(rank: int, pair: Pair) -> list[Row]:
    if are_equal(pair):
        return []
    return [[pair.name, _cell(pair.golden) or "None", _cell(pair.target) or "None", _level(pair)]]


def _setting(rank: int, pair: Pair) -> list[Row]:
    if are_equal(pair):
        return []
    file = f"hyperparameters_{'static' if pair.section == 'hyperparameters' else 'dynamic'}.json"
    golden = "Only in comparison" if pair.golden is None else pair.golden_name or pair.name
    target = "Only in benchmark" if pair.target is None else pair.name
    is_whole = pair.golden is not None and pair.target is not None
    return [
        [file, golden, target, _cell(pair.golden), _cell(pair.target), pair.matched if is_whole else "", _level(pair)]
    ]


def _tensor(rank: int, pair: Pair) -> list[Row]:
    step, _, name = pair.name.partition("/")
    equal: bool | str = are_equal(pair)
    if pair.target is None or pair.golden is None:
        equal = "only bench have" if pair.target is None else "only cmp have"
    return [[int(step.removeprefix("step")), rank, name, equal, *_relative(pair.golden, pair.target)]]


def _relative(golden: Value, target: Value) -> list[float | None]:
    if not isinstance(golden, TensorFact) or not isinstance(target, TensorFact):
        return [None] * 4
    pairs = [(getattr(golden, name), getattr(target, name)) for name in ("max", "min", "mean", "norm")]
    return [_finite(abs(one - other) / one) if one and other is not None else None for one, other in pairs]


def _finite(value: float) -> float | None:
    # A sheet has no cell for NaN and infinity.
    return value if value - value == 0 else None


def _random(rank: int, pair: Pair) -> list[Row]:
    golden, target = _calls(pair.golden), _calls(pair.target)
    return [[pair.name.partition("@")[0], rank, golden[0], target[0], golden[1], target[1], are_equal(pair)]]


def _calls(value: Value) -> tuple[str, int]:
    return ("\n".join(value.stack), value.count) if isinstance(value, RandomCalls) else ("no match stack", 0)


def _plain(rank: int, pair: Pair) -> list[Row]:
    return [] if are_equal(pair) else [[rank, pair.name, _cell(pair.golden), _cell(pair.target), _level(pair)]]


def _cell(value: Value | None) -> Any:
    if isinstance(value, float):
        return str(value) if _finite(value) is None else value
    # A sheet's numbers are floats.
    is_number = isinstance(value, int) and abs(value) <= 2**53
    return value if is_number else "" if value is None else str(value)


_OWN = ["rank", "name", "bench_value", "cmp_value", "level"]
_LAYOUT: dict[str, tuple[frozenset[str], list[str], Callable[[int, Pair], list[Row]]]] = {
    "env": (
        frozenset({"variables"}),
        ["bench_env_name", "cmp_env_name", "bench_value", "cmp_value", "level"],
        _variable,
    ),
    "pip": (frozenset({"packages"}), ["package", "bench version", "cmp version", "level"], _package),
    "dataset": (frozenset({"batches"}), ["step", "rank", "tag", "equal", *_DIFFS], _tensor),
    "weights": (frozenset({"weights"}), ["step", "rank", "weight_name", "equal", *_DIFFS], _tensor),
    "hyperparameters": (
        frozenset({"hyperparameters", "arguments"}),
        ["file_name", "bench_para", "cmp_para", "bench_value", "cmp_value", "matched_with", "level"],
        _setting,
    ),
    "random": (
        frozenset({"random"}),
        ["op", "rank", "bench_stack", "cmp_stack", "bench_count", "cmp_count", "check_result"],
        _random,
    ),
    "buffers": (frozenset({"buffers"}), ["step", "rank", "buffer_name", "equal", *_DIFFS], _tensor),
    "switches": (frozenset({"switches"}), _OWN, _plain),
    "seeds": (frozenset({"seeds"}), _OWN, _plain),
}
