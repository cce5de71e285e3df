"""Whole runs and commands over folders of which a file is nearly right: each ends in a result, or in one error."""

from __future__ import annotations

import re
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given

from pytest_msprobe.commands.main import main
from tests.conftest import OTHER_PLUGINS
from tests.robustness.budget import budget, tried
from tests.robustness.folders import KINDS, build, files_of
from tests.robustness.guard import nothing_leaves
from tests.robustness.mutation import Pick, changed_file, random_picks

# What a run may take besides what it has when it begins: its inputs are of some kilobytes.
_MEMORY = 3 * 2**30
# How long anything takes decides nothing; what waits or goes on for ever is ended.
_SECONDS = 120

Folders = Callable[[str], tuple[Path, list[str]]]


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Write the folder of a kind, once, and return it with the arguments that read it."""
    built: dict[str, tuple[Path, list[str]]] = {}

    def folder(kind: str) -> tuple[Path, list[str]]:
        if kind not in built:
            path = tmp_path_factory.mktemp(kind)
            built[kind] = (path, build(kind, path))
        return built[kind]

    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of the test's own, as the working directory.

    The fixture `pytester` forgets what a run imports, which commands would then have twice: as other classes.
    """
    path = tmp_path / "run"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p no:{name}" for name in OTHER_PLUGINS))
    return path


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    def stop(*_: object) -> None:
        pytest.fail("it does not end")

    former = signal.signal(signal.SIGALRM, stop)
    limit = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + _MEMORY, limit[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limit)
    signal.alarm(0)
    signal.signal(signal.SIGALRM, former)


def outcome(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> tuple[int, str]:
    """Run in the folder, require that it ends as documented, and return the status and what was printed."""
    signal.alarm(_SECONDS)
    with nothing_leaves(folder):
        if arguments[0].startswith("--"):
            status = int(pytest.main([*arguments, "--tb=short", "-q", "-p", "no:cacheprovider"]))
        else:
            status = main(arguments)
    output = "".join(capsys.readouterr())
    signal.alarm(0)
    assert "INTERNALERROR" not in output
    assert "Traceback (most recent call last)" not in output
    assert "MemoryError" not in output
    assert not re.search(r"(?m)^[ \t]*::", output), "a log of GitHub would take a line as a command"
    return status, output


def damage(here: Path, folder: Path, pick: Pick) -> None:
    """Put a copy of a folder in place, one to two of its files changed."""
    for path in here.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    shutil.copytree(folder, here, dirs_exist_ok=True)
    for _ in range(pick((1, 1, 2))):
        changed_file(files_of(here), pick)


def search(here: Path, capsys: pytest.CaptureFixture[str], whole: Folders, kind: str, pick: Pick) -> None:
    folder, arguments = whole(kind)
    damage(here, folder, pick)
    tried[kind] += 1
    # Of pytest: passed, failed, a usage error, nothing collected; of a command: done, something is wrong, an error.
    allowed = (0, 1, 4, 5) if arguments[0].startswith("--") else (0, 1, 2)
    status, output = outcome(here, capsys, arguments)
    assert status in allowed, output[-3000:]


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_is_right_before_it_is_damaged(
    here: Path, capsys: pytest.CaptureFixture[str], whole: Folders, kind: str
) -> None:
    folder, arguments = whole(kind)
    shutil.copytree(folder, here, dirs_exist_ok=True)
    status, output = outcome(here, capsys, arguments)
    assert status in (0, 1), output[-3000:]


@pytest.mark.parametrize("kind", KINDS)
@budget(1)
@given(pick=random_picks())
def test_a_folder_with_a_damaged_file_is_read_or_refused(
    here: Path, capsys: pytest.CaptureFixture[str], whole: Folders, kind: str, pick: Pick
) -> None:
    search(here, capsys, whole, kind, pick)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
@budget(25)
@given(pick=random_picks())
def test_many_folders_with_a_damaged_file_are_read_or_refused(
    here: Path, capsys: pytest.CaptureFixture[str], whole: Folders, kind: str, pick: Pick
) -> None:
    search(here, capsys, whole, kind, pick)
