"""Comparing a recording whose modules were fed from the golden run."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
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


class Between(nn.Module):
    """Scales with code of its own between them: a factor, and a residual sum."""

    def __init__(self, factor: float, *factors: float) -> None:
        super().__init__()
        self.factor = factor
        self.scales = nn.ModuleList(map(Scale, factors))

    def forward(self, x: Tensor) -> Tensor:
        for scale in self.scales:
            x = x + scale(x) * self.factor
        return x


class Two(nn.Module):
    def __init__(self, one: Between, two: Between) -> None:
        super().__init__()
        self.one, self.two = one, two

    def forward(self, x: Tensor) -> Tensor:
        return self.two(self.one(x))


@pytest.fixture
def between(tmp_path: Path) -> Callable[[Two], dict[str, Any]]:
    """Compares a run of which all modules were fed with the golden run: the calls by their names."""

    def compare(wrong: Two) -> dict[str, Any]:
        x = torch.arange(1.0, 9.0)
        for side, model in (("golden", Two(Between(1.0, 2.0, 3.0), Between(1.0, 5.0, 7.0))), ("target", wrong)):
            with ExitStack() as stack:
                if side == "target":
                    stack.enter_context(feed(tmp_path / "golden", ["*"]))
                stack.enter_context(record(tmp_path / side, level="L0", task="tensor", model=model))
                model(x)
        sides = (read_dump(tmp_path / side / "step0/rank/dump.json") for side in ("target", "golden"))
        pair = DumpPair(0, *sides, policy=load_policy("default"))
        calls = [pair.compare(name) for name in pair.orders]
        return {call.record.removeprefix("Module.").partition(".forward")[0]: call for call in calls}

    return compare


def test_a_fault_in_code_between_fed_modules_is_a_culprit_at_the_module_that_it_is_passed_to(between):
    calls = between(Two(Between(1.0, 2.0, 3.0), Between(1.01, 5.0, 7.0)))
    assert causes(calls) == {"two.scales.1.Scale": "culprit", "two.Between": "inherited"}
    assert [row.group for row in calls["two.scales.1.Scale"].rows if row.differs] == ["input"]


def test_what_a_wrong_call_before_explains_is_not_held_against_the_module_that_is_fed(between):
    calls = between(Two(Between(1.0, 2.1, 3.0), Between(1.0, 5.0, 7.0)))
    assert causes(calls) == {"one.scales.0.Scale": "culprit", "one.Between": "inherited"}
    (given,) = [row for row in calls["one.scales.1.Scale"].rows if row.group == "input"]
    assert "what it replaced differs by Module.one.scales.0.Scale.forward.0" in given.messages


def test_a_recording_without_what_was_replaced_says_what_is_not_compared(between, pytester):
    between(Two(Between(1.0, 2.0, 3.0), Between(1.01, 5.0, 7.0)))
    path = pytester.path / "target/step0/rank/dump.json"
    dump = json.loads(path.read_text())
    for body in dump["data"].values():
        del body["passed_args"], body["passed_kwargs"]
    path.write_text(json.dumps(dump))
    result = pytester.runpytest("--msprobe-compare=target", "--msprobe-golden=golden")
    result.stdout.fnmatch_lines(["*what they replaced is not recorded, so the code between modules is not compared"])


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
