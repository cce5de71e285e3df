"""What the acceptance tests share: dumps written on the spot, runs of pytest over them, reports read back."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Loaded once here: pytester drops what an inner run in this process loads, and torch cannot be loaded twice.
import torch  # noqa: F401

import pytest_msprobe.engine.replay.user_check  # noqa: F401

Json = dict[str, Any]


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Leave hypothesis out of inner runs: it would be loaded, slowly, by each of them."""
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p no:hypothesispytest")
    return pytester


@pytest.fixture
def element() -> Callable[..., Json]:
    """Make the element of a recorded tensor."""

    def make(*shape: int, dtype: str = "float32", low: float = -1.0, high: float = 1.0, **fields: Any) -> Json:
        statistics = {"Max": high, "Min": low, "Mean": None, "Norm": None, "requires_grad": False}
        return {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": list(shape)} | statistics | fields

    return make


@pytest.fixture
def forward() -> Callable[..., Json]:
    """Make the body of a forward record; the output defaults to one tensor like the first argument."""

    def make(*args: Any, output: list[Any] | None = None, **kwargs: Any) -> Json:
        return {"input_args": list(args), "input_kwargs": kwargs, "output": [args[0]] if output is None else output}

    return make


@pytest.fixture
def write_dump(pytester: pytest.Pytester) -> Callable[..., Path]:
    """Write records as a ``dump.json``, by default in the folder of the test, and return its path."""

    def write(records: Json, folder: str | Path = ".", **top: Any) -> Path:
        path = pytester.path / folder / "dump.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        envelope = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
        path.write_text(json.dumps(envelope | top | {"data": records}, indent=1))
        return path

    return write


@pytest.fixture
def records(element: Callable[..., Json], forward: Callable[..., Json]) -> Json:
    """Return three calls, two of them with a backward record, that every healthy device computes."""
    integers = {name: {"type": "int", "value": value} for name, value in (("zero", 0), ("last", -1))}
    weight = element(8, 8, requires_grad=True)
    x = element(4, 8, requires_grad=True)
    half = element(4, 8, dtype="bfloat16", requires_grad=True)
    index = element(3, dtype="int64", low=0, high=3)
    return {
        "Functional.softmax.0.forward": forward(x, dim=integers["last"]),
        "Functional.linear.0.forward": forward(half, element(8, 8, dtype="bfloat16", requires_grad=True)),
        "Torch.index_select.0.forward": forward(
            element(4, 8, dtype="int32", low=-9, high=9),
            integers["zero"],
            index,
            output=[element(3, 8, dtype="int32", low=-9, high=9)],
        ),
        "Functional.linear.0.backward": {"input": [half], "output": [half, weight]},
        "Functional.softmax.0.backward": {"input": [x], "output": [x]},
    }


@dataclass(frozen=True)
class Case:
    """One test case of a JUnit file."""

    outcome: str
    text: str
    properties: dict[str, str]


@dataclass(frozen=True)
class Checked:
    """A finished inner run: its exit code, its output and its test cases by record name."""

    result: pytest.RunResult
    cases: dict[str, Case]

    @property
    def exit_code(self) -> int:
        return int(self.result.ret)

    @property
    def outcomes(self) -> dict[str, str]:
        return {name: case.outcome for name, case in self.cases.items()}

    @property
    def wrong(self) -> set[str]:
        """The names of all that failed."""
        return {name for name, case in self.cases.items() if case.outcome == "failed"}

    @property
    def output(self) -> str:
        return self.result.stdout.str()

    @property
    def errors(self) -> str:
        return self.result.stderr.str()


_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def _read_case(case: ET.Element) -> Case:
    properties = {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}
    for child in case:
        if child.tag in _OUTCOMES:
            return Case(_OUTCOMES[child.tag], child.text or child.attrib.get("message", ""), properties)
    return Case("passed", "", properties)


@pytest.fixture
def check(pytester: pytest.Pytester) -> Callable[..., Checked]:
    """Run pytest with these arguments, in this process unless ``apart`` says otherwise, and read its JUnit file."""

    def run(*arguments: str | Path, apart: bool = False) -> Checked:
        report = pytester.path / "report.xml"
        report.unlink(missing_ok=True)
        invoke = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        result = invoke(*arguments, f"--junitxml={report}")
        tree = ET.parse(report).getroot() if report.exists() else ET.Element("empty")
        return Checked(result, {case.attrib["name"]: _read_case(case) for case in tree.iter("testcase")})

    return run


@pytest.fixture
def make_device(pytester: pytest.Pytester) -> Callable[[str], None]:
    """Register the device ``faulty``: a simulated one that runs these lines once ``result`` has been computed."""

    def make(body: str) -> None:
        indented = "\n".join(f"        {line}" for line in body.strip("\n").splitlines())
        pytester.makeconftest(
            f"""
import os
import torch
from pytest_msprobe.devices.sim import SimDevice


class FaultyDevice(SimDevice):
    name = "faulty"

    def call(self, func, args, kwargs, *, record):
        result = func(*args, **kwargs)
{indented}
        return result


def pytest_msprobe_register_devices(registry):
    registry.add(FaultyDevice())
"""
        )

    return make


@pytest.fixture
def always_warns(pytester: pytest.Pytester) -> list[str]:
    """Register a standard whose every verdict is a warning, and return the options that make it judge.

    A standard is registered once per process, so runs with it are runs apart.
    """
    pytester.makeconftest(
        """
        from dataclasses import dataclass
        from typing import ClassVar


        def pytest_msprobe_register_standards(registry):
            from msprobe_standards import Standard, Verdict

            @dataclass(frozen=True)
            class Doubtful(Standard):
                name: ClassVar[str] = "doubtful"
                wanted: ClassVar = frozenset({"max_abs_err"})
                exact_passes: ClassVar[bool] = False

                def decide(self, metrics, baseline_metrics):
                    return Verdict("warn", self.name, "worth a look", margin=0.9)

            registry.add("doubtful", Doubtful)
        """
    )
    (pytester.path / "doubtful.yaml").write_text("rules: [{standard: doubtful}]")
    return ["--msprobe-policy=doubtful.yaml"]
