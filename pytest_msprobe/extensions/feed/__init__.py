"""Layers that are wrong by themselves, in a comparison of a run whose modules were fed golden inputs.

It adds lines to the summary of ``--msprobe-compare``, one for each layer with -v, and a table to its page. It has no
option and writes no file.
What feeds modules is the extension of the same name of msprobe_hooks.

It enters by ``pytest_terminal_summary`` and ``pytest_msprobe_register_comparisons``. Take it out by deleting this
folder and tests/extensions/feed/test_fed_layers.py.

Importing its modules loads pytest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_msprobe.modes.compare.registry import ComparisonRegistry
    from pytest_msprobe.modes.compare.rows import ComparedCall, Row

# The outermost list that a module is in, and its place there.
_LAYER = re.compile(r"(?:[^.\d][^.]*\.)+?\d+(?=\.|$)", re.ASCII)
_SHOWN = 4


@dataclass(slots=True)
class FedLayer:
    """A layer of which modules were fed.

    ``passed`` is the greatest scaled error of what the program passed to the layer, before it was replaced, and
    ``output`` that of what its fed modules made of golden inputs; None where there is none. ``first`` says what is
    wrong first by itself: a module, or the code before one; empty where nothing is. ``wrong`` is the place of its call.
    """

    name: str
    passed: float | None = None
    output: float | None = None
    first: str = ""
    wrong: int | None = None

    def __str__(self) -> str:
        passed, output = map(_in_words, (self.passed, self.output))
        return (
            f"{self.name}: was passed inputs off by {passed}, is off by {output} on golden inputs; "
            f"{self.first or 'nothing in it is wrong by itself'}"
        )

    def as_row(self) -> tuple[str, float | None, float | None, str, int | None]:
        """Return the row of the page's table, in which numbers are those of the columns before."""
        first = self.first.partition(" is wrong")[0]
        return self.name, self.passed, self.output, first, self.wrong


def fed_layers(calls: Iterable[tuple[int, ComparedCall]]) -> list[FedLayer]:
    """Return the layers of which forward calls were fed, in the order of their first calls; calls with their places.

    A layer is an item of the outermost list that a module is in; a module outside of lists is one by itself.
    """
    from msprobe_hooks.dump.names import is_forward, is_module_name, split_module

    layers: dict[str, FedLayer] = {}
    for place, call in calls:
        if not (call.fed and call.target and is_module_name(call.target) and is_forward(call.target)):
            continue
        path = split_module(call.target).path
        match = _LAYER.match(path)
        name = match[0] if match else path
        layer = layers.setdefault(name, FedLayer(name))
        inputs = [row for row in call.rows if row.group == "input" and _is_fed(row)]
        outputs = [row for row in call.rows if row.group == "output"]
        if path == name or layer.passed is None:
            layer.passed = _greatest(inputs)
        layer.output = _greatest(outputs, layer.output)
        if not layer.first:
            replaced = [row for row in inputs if row.differs]
            if replaced:
                layer.first = f"the code before {path} is wrong by {_in_words(_greatest(replaced))}"
            elif call.cause == "culprit" and any(row.differs for row in outputs):
                layer.first = f"{path} is wrong"
            layer.wrong = place if layer.first else None
    return [*layers.values()]


def _is_fed(row: Row) -> bool:
    """Return whether an input was replaced, as the comparison says first of it."""
    from pytest_msprobe.modes.compare.judging.fed_modules import FED

    return bool(row.messages) and row.messages[0].startswith(FED)


def _in_words(error: float | None) -> str:
    return "what was not measured" if error is None else f"{error:.2e}"


def _greatest(rows: Iterable[Row], error: float | None = None) -> float | None:
    """Return the greatest scaled error of rows and one before them, None where there is none."""
    from pytest_msprobe.modes.compare.rows import SCALED_ERROR

    errors = [row.metrics[SCALED_ERROR] for row in rows if SCALED_ERROR in row.metrics]
    return max([*errors, *([] if error is None else [error])], default=None)


def pytest_msprobe_register_comparisons(registry: ComparisonRegistry) -> None:
    """Add the table of fed layers to the page of a comparison."""
    registry.set_fed_layers(lambda calls: [layer.as_row() for layer in fed_layers(calls)])


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Write which layers are wrong by themselves, below the summary of a comparison of fed modules."""
    from pytest_msprobe.modes.compare.rows import compared_key
    from pytest_msprobe.reports.text import one_line

    config = terminalreporter.config
    calls = config.stash.get(compared_key, None)
    layers = fed_layers(enumerate(calls)) if calls is not None else []
    for line in _lines(layers, is_verbose=config.get_verbosity() > 0):
        terminalreporter.line(one_line(line))


def _lines(layers: list[FedLayer], *, is_verbose: bool) -> Iterator[str]:
    if not layers:
        return
    wrong = [layer for layer in layers if layer.first]
    first = f", first {wrong[0].name}" if wrong else ""
    yield f"on golden inputs {len(wrong)} of {len(layers)} fed layers are wrong by themselves{first}"
    shown = layers if is_verbose else wrong[:_SHOWN]
    yield from (f"    {layer}" for layer in shown)
    left = len(wrong) - len(shown)
    if left > 0:
        yield f"    and {left} more (listed with -v)"
