"""Every environment that `make` builds has the versions that its file of constraints names."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.requirements import require

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = [
    pytest.param(".venv", "constraints.txt", ["torch", "all"], ["dev", "site"], id="development"),
    pytest.param(
        ".venv-mindspore",
        "constraints-mindspore.txt",
        ["torch", "xdist", "mindspore"],
        ["mindspore-tests"],
        id="mindspore",
    ),
    # `make test-slow` installs the viewer.
    pytest.param(".venv-viewer", "constraints-viewer.txt", [], ["viewer"], id="viewer", marks=pytest.mark.slow),
    # `make nightly` installs the frameworks.
    pytest.param(
        ".venv-frameworks",
        "constraints-frameworks.txt",
        ["torch"],
        ["frameworks"],
        id="frameworks",
        marks=[pytest.mark.slow, pytest.mark.nightly],
    ),
]


def pins(file: str) -> dict[str, str]:
    """Return the version of each package that a file of constraints names."""
    lines = (line for line in (ROOT / file).read_text().splitlines() if not line.startswith("#"))
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def installed_packages(environment: str) -> dict[str, Distribution]:
    [site] = (ROOT / environment).glob("lib/python*/site-packages")
    return {canonicalize_name(one.metadata["Name"]): one for one in distributions(path=[str(site)])}


def required_packages(installed: dict[str, Distribution], asked: list[Requirement]) -> set[str]:
    """Return the names of what is asked for and of everything that this needs in turn, as far as it is installed."""
    found: set[tuple[str, str]] = set()
    waiting = asked
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        for extra in {"", *one.extras}:
            if name in installed and (name, extra) not in found:
                found.add((name, extra))
                needs = map(Requirement, installed[name].requires or [])
                waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


@pytest.mark.parametrize(("environment", "file", "extras", "groups"), ENVIRONMENTS)
def test_what_make_installs_has_the_versions_of_its_constraints(
    environment: str, file: str, extras: list[str], groups: list[str]
) -> None:
    require((ROOT / environment).is_dir(), f"{environment}, which make builds")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = [Requirement(one) for group in groups for one in project["dependency-groups"][group]]
    if extras:
        asked.append(Requirement(f"pytest-msprobe[{','.join(extras)}]"))
    installed = installed_packages(environment)
    needed = required_packages(installed, [*asked, Requirement("pip")]) - {"pytest-msprobe"}
    versions = {name: re.sub(r"\+.*", "", installed[name].version) for name in needed}
    pinned = pins(file)
    assert len(needed) > 10
    assert {
        name: (version, pinned.get(name)) for name, version in versions.items() if pinned.get(name) != version
    } == {}


def test_what_builds_the_package_has_a_version_in_the_constraints() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert {canonicalize_name(Requirement(one).name) for one in project["build-system"]["requires"]} <= pins(
        "constraints.txt"
    ).keys()


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt", "neighbours.txt"])
def test_every_line_of_the_constraints_names_one_version(file: str) -> None:
    assert [name for name, version in pins(file).items() if not version] == []
