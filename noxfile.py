"""What `make test-matrix` runs: what a version can break, on each Python that is here, with torch and with MindSpore.

Environments are made by pip and not by uv, which would fetch the CUDA builds of torch where a CPU build lies at hand.
Each environment writes a row of the table in docs/versions.md.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import nox
import tomllib
from nox.command import CommandFailed

# Python's own `venv` needs a part that Debian's Pythons do not have.
nox.options.default_venv_backend = "virtualenv"
nox.options.error_on_missing_interpreters = False
nox.options.sessions = ["versions", "mindspore", "lowest", "npu"]

# Versions of torch, each with a Python and what else is not the newest: with the oldest of each, with the newest of
# each, and those in between spread over the others.
TORCH = [
    ("3.10", "2.3.1", ["numpy==1.23.2", "pytest==8.0.0", "pytest-xdist==3.5.0", "msgspec==0.18.0", "pyyaml==6.0"]),
    ("3.11", "2.5.1", ["numpy==1.26.4", "pytest==8.2.2"]),
    ("3.12", "2.7.1", ["numpy==2.0.2", "pytest==8.4.2"]),
    ("3.13", "2.9.1", ["numpy==2.2.6", "pytest==9.0.0"]),
    ("3.12", "2.11.0", ["numpy==2.3.5"]),
    ("3.10", "2.13.0", ["pytest==8.0.0"]),
    ("3.11", "2.13.0", ["pytest==8.0.0"]),
    ("3.12", "2.13.0", []),
    ("3.13", "2.13.0", []),
    ("3.14", "2.13.0", []),
    ("3.11", "2.15.0", []),
    ("3.14", "2.15.0", []),
]
MINDSPORE = [("3.10", "2.9.0"), ("3.11", "2.9.0"), ("3.11", "2.10.0")]
# The rows of the table, a JSON object a line, for `python -m tests.support.environments.versions_table`.
ROWS = Path(".nox/versions.jsonl")

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
    "tests/extensions/explore/test_drawn_inputs.py",
    "tests/extensions/live_checks/test_live_fixture.py",
    "tests/extensions/monitor/test_monitoring_fixture.py",
    "tests/fixtures",
    "tests/run/test_collection.py",
    "tests/run/test_hooks.py",
    "tests/run/test_options.py",
    "tests/run/test_xdist.py",
]
TOOLS = ["mpmath", "pytest-rerunfailures"]

# The oldest torch_npu for a torch that pyproject.toml allows, and the newest: with that torch, and a Python that both
# are built for. What `make test-slow` has is between them.
NPU = [("2.3.1.post6", "2.3.1", "3.10"), ("2.14.0", "2.14.0", "3.11")]
DEMO = ["-c", "examples/pytest.ini", "--msprobe-dump=examples/check_a_dump/dump.json"]

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())
NEIGHBOURS = "neighbours.txt"
# Chosen by hand: what a renewal keeps. PyPI's newer builds of torch are CUDA builds, of gigabytes, and newer
# pymdown-extensions need Python 3.11.5, where Debian 12 has 3.11.2.
KEPT = ["torch", "mindspore", "tb-graph-ascend", "pymdown-extensions"]
# The oldest TensorBoard needs a NumPy and a protobuf older than what the others allow.
NOT_LOWEST = ["torch", "mindspore", "tensorboard", "all"]


def lowest_versions() -> list[str]:
    """Return the lowest version of each dependency that pyproject.toml allows, without the frameworks."""
    extras = PROJECT["project"]["optional-dependencies"]
    everything = [one for name, extra in extras.items() if name not in NOT_LOWEST for one in extra]
    return [one.replace(">=", "==") for one in [*PROJECT["project"]["dependencies"], *everything]]


# Each file of constraints with what `make` installs into the environment that the file is for.
ENVIRONMENTS = {
    "constraints.txt": ["--group=dev", "--group=site", "--editable=.[torch,all]", *PROJECT["build-system"]["requires"]],
    "constraints-mindspore.txt": ["--group=mindspore-tests", "--editable=.[torch,xdist,mindspore]"],
    "constraints-viewer.txt": ["--group=viewer"],
    "constraints-frameworks.txt": ["--group=frameworks", "--editable=.[torch]"],
    "constraints-lowest.txt": ["torch", *TOOLS, *lowest_versions()],
}


@nox.session
@nox.parametrize("python,torch,others", TORCH, ids=[f"python{python}-torch{torch}" for python, torch, _ in TORCH])
def versions(session: nox.Session, torch: str, others: list[str]) -> None:
    """Check, record and compare with a version of torch, and run what a version can break or the tests that are given.

    A CUDA build downloads gigabytes; its environment is removed.
    """
    has_cpu_build = installs(session, f"torch=={torch}+cpu")
    session.install(f"torch=={torch}", "--editable=.[torch,all]", *TOOLS, *others)
    recordings = files_of(session) / "recordings"
    session.run("python", "-m", "tests.support.dumps.two_recordings", str(recordings))
    compared = [f"--msprobe-compare={recordings / 'first'}", f"--msprobe-golden={recordings / 'second'}"]
    row = {
        "check": results(session, *DEMO),
        "-n 2": results(session, *DEMO, "-n", "2"),
        "recording": results(session, f"--msprobe-dump={recordings / 'first'}"),
        "comparison": results(session, *compared),
        "tests": results(session, *(session.posargs or [*TESTS, "-n", "2", "-m", "not slow"])),
    }
    write_row(session, row)
    if not has_cpu_build:
        shutil.rmtree(session.virtualenv.location)
    require_passed(session, row)


@nox.session
@nox.parametrize("python,mindspore", MINDSPORE)
def mindspore(session: nox.Session, mindspore: str) -> None:
    """Run the tests of MindSpore with another version of it, and the golden results of the pinned torch."""
    session.install(*kept_versions(["torch"]), f"mindspore=={mindspore}", "--editable=.[xdist,mindspore]", "hypothesis")
    row = {"tests": results(session, *(session.posargs or ["tests/mindspore", "-n", "2", "-m", "not slow"]))}
    write_row(session, row)
    require_passed(session, row)


def results(session: nox.Session, *words: str) -> str:
    """Run pytest with these options and return its counts: "362 passed, 1 skipped"; or that it ended otherwise."""
    report = files_of(session) / "report.xml"
    report.unlink(missing_ok=True)
    try:
        session.run("pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *words, success_codes=[0, 1])
    except CommandFailed:
        return "did not end"
    suite = next(ElementTree.parse(report).getroot().iter("testsuite"))
    bad = {name: int(suite.get(name, 0)) for name in ("failures", "errors", "skipped")}
    counts = {"passed": int(suite.get("tests", 0)) - sum(bad.values())} | bad
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "passed")


def require_passed(session: nox.Session, row: dict[str, str]) -> None:
    """Fail the session where anything failed; its row is written."""
    failed = [name for name, result in row.items() if re.search("failures|errors|did not end", result)]
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def files_of(session: nox.Session) -> Path:
    """Return a folder for a session's files; nox's own would be that of every test, within this project."""
    folder = Path(session.virtualenv.location, "files").resolve()
    folder.mkdir(exist_ok=True)
    return folder


def write_row(session: nox.Session, row: dict[str, str]) -> None:
    """Add what ran in this environment to the rows, with its versions and today's date."""
    code = """
import importlib.metadata, json, platform
from contextlib import suppress
found = {one.metadata["name"].lower(): one.version for one in importlib.metadata.distributions()}
with suppress(ImportError):
    import torch
    found["torch"] = torch.__version__
print(json.dumps({"python": platform.python_version()} | found))
"""
    installed = json.loads(session.run("python", "-c", code, silent=True) or "{}")
    names = ("python", "torch", "mindspore", "numpy", "pytest", "pytest-xdist", "msgspec")
    versions = {name: installed.get(name, "") for name in names}
    with ROWS.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"date": f"{datetime.date.today():%d %B %Y}"} | versions | row) + "\n")


@nox.session(python=["3.10", "3.11"])
def lowest(session: nox.Session) -> None:
    """Run short tests, or those that are given, with the lowest versions that pyproject.toml allows, but for torch."""
    # The file is for Python 3.11; an older one takes the newest that it can have of what nothing here asks for.
    pins = ["--constraint=constraints-lowest.txt"] if session.python == "3.11" else kept_versions(["torch"])
    session.install(*pins, "--upgrade", "pip")
    session.install(*pins, *ENVIRONMENTS["constraints-lowest.txt"])
    session.install("--no-deps", "--build-constraint=constraints.txt", "--editable=.")
    run_tests(session, session.posargs or SHORT)


@nox.session
@nox.parametrize("torch_npu,torch,python", NPU)
def npu(session: nox.Session, torch_npu: str, torch: str) -> None:
    """Check the demo's dump on a simulated card with another torch_npu, where pip finds a CPU build of its torch."""
    # The build is named, or pip would take PyPI's: gigabytes of CUDA.
    if not installs(session, f"torch=={torch}+cpu"):
        session.skip(f"pip finds no CPU build of torch {torch}")
    # torch older than 2.4 was built for NumPy 1.
    numpy = ["numpy<2"] if torch.startswith("2.3.") else []
    session.install("--editable=.[torch]", f"torch=={torch}+cpu", *numpy)
    folder = files_of(session) / "torch_npu"
    session.install("--no-deps", "--upgrade", f"--target={folder}", f"torch-npu=={torch_npu}")
    session.run("pip", "freeze", "--exclude-editable")
    command = ["pytest", "-q", "-p", "no:cacheprovider", *DEMO]
    session.run(
        *("python", "-m", "tests.support.npu.process", *command, "--msprobe-device=npu:0"),
        env={"SIMULATED_CANN_TORCH_NPU": str(folder)},
    )


def installs(session: nox.Session, requirement: str) -> bool:
    """Return whether pip finds a wheel of this, and install it without what it depends on."""
    try:
        session.run("pip", "install", "--quiet", "--no-deps", "--only-binary=:all:", requirement, silent=True)
    except CommandFailed:
        return False
    return True


@nox.session(python="3.11")
@nox.parametrize("file", list(ENVIRONMENTS))
def constraints(session: nox.Session, file: str) -> None:
    """Renew a file of constraints: the newest version of every package, but for those in KEPT."""
    kept = kept_versions(KEPT)
    session.install("--upgrade", "pip")
    with_kept = files_of(session) / "kept.txt"
    with_kept.write_text("\n".join(kept))
    session.install("--upgrade", "--upgrade-strategy=eager", f"--constraint={with_kept}", *ENVIRONMENTS[file])
    write_versions(file, installed_versions(session, "--exclude-editable"))


@nox.session(python="3.11")
def neighbours(session: nox.Session) -> None:
    """Renew the versions of the neighbouring plugins."""
    names = [line.split("==")[0] for line in Path(NEIGHBOURS).read_text().splitlines() if not line.startswith("#")]
    session.install("--no-deps", *names)
    write_versions(NEIGHBOURS, [one for one in installed_versions(session) if one.split("==")[0].lower() in names])


def kept_versions(names: list[str]) -> list[str]:
    """Return the pins of these packages, each as the constraints name it today."""
    lines = {line for file in ENVIRONMENTS for line in Path(file).read_text().splitlines()}
    return sorted(line for line in lines if line.split("==")[0] in names)


def installed_versions(session: nox.Session, *options: str) -> list[str]:
    """Return `name==version` of every package of the session's environment, without the build of torch."""
    listed = session.run("pip", "freeze", "--all", *options, silent=True, log=False) or ""
    return sorted(re.sub(r"\+.*", "", line).replace("_", "-").lower() for line in listed.splitlines())


def write_versions(file: str, versions: list[str]) -> None:
    """Write these versions into a file of requirements, below the comment that heads it."""
    comment = [line for line in Path(file).read_text().splitlines() if line.startswith("#")]
    Path(file).write_text("\n".join([*comment, *versions, ""]))


def run_tests(session: nox.Session, tests: list[str]) -> None:
    """Print the installed versions and run these tests."""
    session.run("pip", "freeze", "--exclude-editable")
    session.run("pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *tests)
