"""JUnit as the schema of Jenkins' xUnit plugin has it."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from pytest_msprobe.commands.main import main

# What `junit-10.xsd` of https://github.com/jenkinsci/xunit-plugin (commit 0c3752259ca1, in
# src/main/resources/org/jenkinsci/plugins/xunit/types/model/xsd) allows: of each element its attributes, the required
# ones first and up to the bar, and the elements in it.
_SUITE = "failures errors time disabled skipped skips timestamp hostname id package assertions file skip log url name"
_CASE = "assertions time timestamp classname status class file line log group url"
_CONTENTS = "skipped error failure rerunFailure rerunError system-out system-err"
_ALLOWED = {
    "testsuites": (" | name time tests failures disabled errors", "testsuite"),
    "testsuite": (f"tests | {_SUITE}", "testsuite properties testcase system-out system-err"),
    "properties": (" | ", "property"),
    "property": ("name value | ", ""),
    "testcase": (f"name | {_CASE}", _CONTENTS),
    "failure": (" | type message", ""),
    "error": (" | type message", ""),
    "skipped": (" | type message", ""),
    "system-out": (" | ", ""),
    "system-err": (" | ", ""),
}


def violations(element: ET.Element) -> list[str]:
    """Return what of an element, and of those in it, the schema does not allow."""
    attributes, children = _ALLOWED[element.tag]
    required, optional = (set(part.split()) for part in attributes.split("|"))
    given = set(element.attrib)
    found = [f"{element.tag} has no {name}" for name in required - given]
    found += [f"{element.tag} has {name}" for name in given - required - optional]
    for child in element:
        if child.tag in children.split():
            found += violations(child)
        else:
            found.append(f"{element.tag} holds {child.tag}")
    return found


def junit(journal: Path, *words: str) -> ET.Element:
    path = journal.parent / "junit.xml"
    assert main(["report", str(journal), "--junit", str(path), *words]) == 0
    return ET.parse(path).getroot()


def test_the_family_of_jenkins_is_valid_by_its_schema(journal: Path) -> None:
    assert violations(junit(journal, "--junit-family", "jenkins")) == []
    assert "testcase holds properties" in violations(junit(journal))


def test_properties_are_lines_of_the_cases_output(journal: Path) -> None:
    ours, theirs = junit(journal), junit(journal, "--junit-family", "jenkins")
    for case, other in zip(ours.iter("testcase"), theirs.iter("testcase"), strict=True):
        reported = [f"{entry.attrib['name']}: {entry.attrib['value']}" for entry in case.iter("property")]
        assert (other.findtext("system-out") or "").splitlines() == reported
        assert case.attrib == other.attrib
