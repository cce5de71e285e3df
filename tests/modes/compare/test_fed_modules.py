"""Comparing a recording whose modules were fed from the golden run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from msprobe_hooks import feed, record
from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.modes.compare.dump_pair import DumpPair
from pytest_msprobe.modes.compare.judging.policy import load_policy


class Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Block(nn.Module):
    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.scales = nn.ModuleList(map(Scale, factors))

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = scale(x)
        return x


class Model(nn.Module):
    """Four scales in two blocks; a wrong factor is a fault."""

    def __init__(self, *factors: float) -> None:
        super().__init__()
        self.one, self.two = Block(*factors[:2]), Block(*factors[2:])

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x))


RIGHT, WRONG = (2.0, 3.0, 5.0, 7.0), (4.0, 3.0, 5.0, 7.01)


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Compares a run of two faults, fed with the inputs of modules, with the golden run: the calls by their names."""

    def write(side: str, model: Model, x: Tensor) -> Path:
        with record(tmp_path / side, level="L0", task="tensor", model=model):
            model(x)
        return tmp_path / side / "step0" / "rank" / "dump.json"

    def compare(*modules: str, source: Tensor | None = None) -> dict[str, Any]:
        x = torch.arange(1.0, 9.0)
        golden = write("golden", Model(*RIGHT), x)
        if source is not None:
            write("source", Model(*RIGHT), source)
        with feed(tmp_path / ("golden" if source is None else "source"), modules):
            target = write("target", Model(*WRONG), x)
        pair = DumpPair(0, read_dump(target), read_dump(golden), policy=load_policy("default"))
        calls = [pair.compare(name) for name in pair.orders]
        return {call.record.removeprefix("Module.").partition(".forward")[0]: call for call in calls}

    return compare


def causes(calls: dict[str, Any]) -> dict[str, str]:
    return {name: call.cause for name, call in calls.items() if call.outcome == "fail"}


def test_each_fault_is_a_culprit_and_what_holds_it_inherits(compared):
    assert causes(compared("*")) == {
        "one.scales.0.Scale": "culprit",
        "two.scales.1.Scale": "culprit",
        "two.Block": "inherited",
    }


def test_only_fed_modules_are_free_of_the_error_before_them(compared):
    assert causes(compared("two.scales.1")) == {
        "one.scales.0.Scale": "culprit",
        "one.scales.1.Scale": "inherited",
        "one.Block": "inherited",
        "two.scales.0.Scale": "inherited",
        "two.scales.1.Scale": "culprit",
        "two.Block": "inherited",
    }


def test_a_fed_call_names_the_dump_of_its_inputs(compared, tmp_path):
    calls = compared("two.scales.1")
    assert calls["two.scales.1.Scale"].fed == str(tmp_path / "golden/step0/rank/dump.json")
    assert calls["two.scales.1.Scale"].rows[0].messages[0].startswith("fed from Module.two.scales.1.Scale.forward.0 in")
    assert calls["two.scales.0.Scale"].fed == ""


def test_inputs_that_were_fed_from_another_run_are_not_held_against_a_call(compared):
    calls = compared("two.scales.0", source=torch.arange(2.0, 10.0))
    given = calls["two.scales.0.Scale"].rows[0]
    assert (given.group, given.outcome) == ("input", "pass")
    assert given.metrics["scaled_error"] > 0.1


def test_the_header_and_the_failing_item_say_what_was_fed(compared, pytester):
    compared("*")
    result = pytester.runpytest("--msprobe-compare=target", "--msprobe-golden=golden")
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(
        [
            "msprobe: inputs of 6 modules of the target (6 calls) were fed from */golden/step0/rank/dump.json: *",
            "  its inputs were fed from */golden/step0/rank/dump.json: no error of an earlier call is in them",
        ]
    )


@pytest.mark.slow
def test_a_source_that_is_not_the_golden_run_is_named(compared, pytester):
    compared("two.scales.0", source=torch.arange(2.0, 10.0))
    result = pytester.runpytest("--msprobe-compare=target", "--msprobe-golden=golden")
    result.stdout.fnmatch_lines(["*were fed from */source/step0/rank/dump.json, which is not the golden run:*"])


@pytest.mark.slow
def test_a_record_that_says_it_in_another_form_is_refused_in_one_line(compared, pytester, tmp_path):
    compared("*")
    path = tmp_path / "target" / "step0" / "rank" / "dump.json"
    path.write_text(path.read_text().replace('"places":["input.0"]', '"places":3'))
    result = pytester.runpytest("--msprobe-compare=target", "--msprobe-golden=golden")
    assert result.ret != 0
    assert any("details.fed" in line for line in [*result.outlines, *result.errlines])
