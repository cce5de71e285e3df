"""What `make test-matrix` runs: the tests that a version can break, on each Python that is here.

Environments are made by pip and not by uv, which would fetch the CUDA builds of torch where a CPU build lies at hand.
"""

from __future__ import annotations

import re

import nox

nox.options.default_venv_backend = "venv"
nox.options.error_on_missing_interpreters = False

PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]

# What asks the interpreter, pytest, msgspec, NumPy or PyYAML for more than their commonest functions, in seconds.
SHORT = [
    "tests/hooks/torch/naming",
    "tests/journal",
    "tests/results",
    "tests/standards/test_decoding.py",
    "tests/storage",
]
# The same, and what runs pytest and xdist.
TESTS = [
    *SHORT,
    "tests/fixtures",
    "tests/run/test_collection.py",
    "tests/run/test_hooks.py",
    "tests/run/test_options.py",
    "tests/run/test_xdist.py",
]
TOOLS = ["mpmath", "pytest-rerunfailures"]
EXTRAS = ["torch", "xdist", "junit", "cases", "explore", "xlsx", "pictures", "parquet", "md5", "compression"]


@nox.session(python=PYTHONS)
@nox.parametrize("pytest", ["pytest==8.0.*", "pytest"])
def versions(session: nox.Session, pytest: str) -> None:
    """Test with the oldest and the newest pytest."""
    session.install("--constraint", "constraints.txt", "--editable", f".[{','.join(EXTRAS)}]", *TOOLS, pytest)
    run_tests(session, TESTS)


@nox.session(python=["3.10", "3.11"])
def lowest(session: nox.Session) -> None:
    """Test with the lowest version of everything that pyproject.toml asks for, but for torch."""
    project = nox.project.load_toml("pyproject.toml")["project"]
    asked = [*project["dependencies"], *(one for extra in EXTRAS for one in project["optional-dependencies"][extra])]
    floors = [re.sub(">=", "==", one) for one in asked if not one.startswith("torch>=")]
    session.install("--constraint", "constraints.txt", "torch", *floors, *TOOLS)
    session.install("--no-deps", "--editable", ".")
    run_tests(session, SHORT)


def run_tests(session: nox.Session, tests: list[str]) -> None:
    """Run these tests, and tell beside what."""
    session.run("pip", "freeze", "--exclude-editable")
    session.run("pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests)
