"""Runs of pytest within a test, and what their JUnit files say."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest


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


def run_pytest(pytester: pytest.Pytester, *arguments: str | Path, apart: bool = False) -> pytest.RunResult:
    """Run pytest in the folder of the test, in this process or ``apart`` in one of its own."""
    invoke = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
    return invoke(*arguments)


def check(pytester: pytest.Pytester, *arguments: str | Path, apart: bool = False) -> Checked:
    """Run pytest and read its JUnit file, if it came to one."""
    report = pytester.path / "report.xml"
    report.unlink(missing_ok=True)
    result = run_pytest(pytester, *arguments, f"--junitxml={report}", apart=apart)
    tree = ET.parse(report).getroot() if report.exists() else ET.Element("empty")
    return Checked(result, {case.attrib["name"]: _read_case(case) for case in tree.iter("testcase")})


_OUTCOMES = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def _read_case(case: ET.Element) -> Case:
    properties = {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}
    for child in case:
        if child.tag in _OUTCOMES:
            return Case(_OUTCOMES[child.tag], child.text or child.attrib.get("message", ""), properties)
    return Case("passed", "", properties)
