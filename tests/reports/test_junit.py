from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Write = Callable[..., Path]
Json = dict[str, Any]


@pytest.fixture
def suite(
    pytester: pytest.Pytester,
    write_dump: Write,
    records: Json,
    check: Any,
    make_device: Callable[[str], None],
    element: Any,
    forward: Any,
) -> ET.Element:
    """Return the test suite of a run with a failing, a skipped, a malformed and several right records."""
    unknown = forward(element(4))
    write_dump({**records, "Torch.no_such_api.0.forward": unknown, "no name": {}})
    make_device("if record == 'Torch.index_select.0.forward': result = result + 1")
    check("--msprobe-dump=dump.json", "--msprobe-device=faulty:2", "--msprobe-seed=5")
    (suite,) = ET.parse(pytester.path / "report.xml").getroot().iter("testsuite")
    return suite


def case(suite: ET.Element, name: str) -> ET.Element:
    (found,) = (case for case in suite.iter("testcase") if case.attrib["name"] == name)
    return found


def properties(case: ET.Element) -> dict[str, str]:
    return {entry.attrib["name"]: entry.attrib["value"] for entry in case.iter("property")}


def test_counts_and_names_are_those_of_the_records(suite: ET.Element, records: Json) -> None:
    counts = {key: int(suite.attrib[key]) for key in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": len(records) + 2, "failures": 2, "errors": 0, "skipped": 1}
    assert {case.attrib["name"] for case in suite.iter("testcase")} == {
        *records,
        "Torch.no_such_api.0.forward",
        "no name",
    }
    assert {case.attrib["classname"] for case in suite.iter("testcase")} == {"dump.json"}


@pytest.mark.parametrize(
    ("name", "verdict", "decided_by"),
    [
        ("Functional.linear.0.backward", "pass", {"msprobe.standard": "benchmark"}),
        ("Torch.index_select.0.forward", "fail", {"msprobe.standard": "binary_consistency"}),
        ("Torch.no_such_api.0.forward", "skip", {"msprobe.standard": ""}),
        ("no name", "fail", {"msprobe.standard": "", "msprobe.breakdown": "record"}),
    ],
)
def test_properties_show_verdict_standard_margin_device_and_seed(
    suite: ET.Element, name: str, verdict: str, decided_by: dict[str, str]
) -> None:
    reported = properties(case(suite, name))
    margin = float(reported.pop("msprobe.margin"))
    assert reported.pop("msprobe.math_modes").startswith("float32 matmul precision highest")
    assert reported == {
        "msprobe.verdict": verdict,
        **decided_by,
        "msprobe.device": "faulty:2",
        "msprobe.seed": "5",
    }
    assert (margin > 1) == (verdict == "fail")


def test_a_failure_holds_the_whole_text_and_a_skip_its_reason(suite: ET.Element) -> None:
    (failure,) = case(suite, "Torch.index_select.0.forward").iter("failure")
    assert "Torch.index_select.0.forward is wrong" in (failure.text or "")
    assert "Run this item alone: pytest " in (failure.text or "")
    (skip,) = case(suite, "Torch.no_such_api.0.forward").iter("skipped")
    assert "this torch has no such API: Torch.no_such_api" in skip.attrib["message"]
