from __future__ import annotations

from pathlib import Path

import pytest

from pytest_msprobe.extensions.hosts.run_files import FileServer, Outputs, RunFiles

REFUSED = ("request from a remote host rejected: not a file of this run", None)


@pytest.fixture
def desk(tmp_path: Path) -> FileServer:
    """Return a desk for a dump with one tensor file, and a folder of 100 bytes for what comes back."""
    dump, tensors = tmp_path / "dump.json", tmp_path / "tensors"
    dump.write_bytes(b"{...}")
    tensors.mkdir()
    (tensors / "a.pt").write_bytes(b"abc")
    (tmp_path / "secret").write_bytes(b"secret")
    (tensors / "link.pt").symlink_to(tmp_path / "secret")
    return FileServer(RunFiles((dump,), {dump: tensors}, "", 0), Outputs({tmp_path / "cases": 100}))


def test_the_files_of_the_run_are_read_from_any_offset(desk: FileServer, tmp_path: Path) -> None:
    assert desk.answer(["read", f"{tmp_path}/dump.json", 0], "gw0") == ("", b"{...}")
    assert desk.answer(["read", f"{tmp_path}/tensors/a.pt", 1], "gw0") == ("", b"bc")
    assert desk.answer(["read", f"{tmp_path}/tensors/a.pt", 3], "gw0") == ("", b"")


def test_sizes_of_tensor_files_are_reported_and_which_are_missing(desk: FileServer, tmp_path: Path) -> None:
    changed = (tmp_path / "tensors/a.pt").stat().st_mtime_ns
    assert desk.answer(["sizes", f"{tmp_path}/tensors", ["a.pt", "b.pt"]], "gw0") == ("", [(3, changed), None])


def test_a_file_that_has_gone_is_a_problem_that_names_it(desk: FileServer, tmp_path: Path) -> None:
    (tmp_path / "dump.json").unlink()
    problem, _ = desk.answer(["read", f"{tmp_path}/dump.json", 0], "gw0")
    assert problem == f"{tmp_path}/dump.json: No such file or directory"


@pytest.mark.parametrize(
    "question",
    [
        ["read", "{}/secret", 0],
        ["read", "{}/tensors/../secret", 0],
        ["read", "{}/tensors/link.pt", 0],
        ["read", "/etc/passwd", 0],
        ["read", "{}/dump.json", "0"],
        ["sizes", "{}/tensors", ["link.pt"]],
        ["sizes", "{}/tensors", ["../secret"]],
        ["sizes", "{}/tensors", None],
        ["sizes", "{}/tensors"],
        ["read", "{}/dump.json", 2**70],
        ["write", "{}/cases/x", 0, float("nan"), bytes(200)],
        ["write", "{}/dump.json", 0, 1, b"x"],
        ["write", "{}/cases/../dump.json", 0, 1, b"x"],
        ["write", "{}/cases/x", 0, 1, b"xx"],
        ["write", "{}/cases/x", 0, 1, "x"],
        ["has", "{}/secret", ""],
        ["run", "{}/x"],
        ["read"],
        [],
        None,
        b"\x00",
    ],
)
def test_what_is_none_of_a_hosts_business_is_refused(desk: FileServer, tmp_path: Path, question: object) -> None:
    if isinstance(question, list):
        question = [str(part).format(tmp_path) if place == 1 else part for place, part in enumerate(question)]
    assert desk.answer(question, "gw0") == REFUSED
    assert (tmp_path / "dump.json").read_bytes() == b"{...}"


def test_a_file_that_comes_in_parts_is_there_once_it_is_whole(desk: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "cases" / "one" / "case.json"
    assert desk.answer(["write", str(path), 0, 4, b"ab"], "gw0") == ("", None)
    assert not path.exists()
    assert desk.answer(["write", str(path), 3, 4, b"d"], "gw0") == REFUSED
    assert desk.answer(["write", str(path), 2, 4, b"cd"], "gw0") == ("", None)
    assert path.read_bytes() == b"abcd"


def test_a_file_gets_no_larger_than_was_said_at_first(desk: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "cases" / "a"
    assert desk.answer(["write", str(path), 0, 2, b"a"], "gw0") == ("", None)
    assert desk.answer(["write", str(path), 1, 200, bytes(199)], "gw0") == REFUSED
    assert desk.answer(["write", str(path), 1, 2, b"b"], "gw0") == ("", None)
    assert path.read_bytes() == b"ab"


def test_two_hosts_may_send_a_file_of_one_name_at_once(desk: FileServer, tmp_path: Path) -> None:
    path = tmp_path / "cases" / "a"
    for offset, content in enumerate([b"a", b"b"]):
        for worker in ("gw0", "gw1"):
            assert desk.answer(["write", str(path), offset, 2, content], worker) == ("", None)
    assert path.read_bytes() == b"ab"
    assert [file.name for file in path.parent.iterdir()] == ["a"]


def test_a_folder_takes_no_more_than_its_limit(desk: FileServer, tmp_path: Path) -> None:
    assert desk.answer(["write", f"{tmp_path}/cases/a", 0, 90, bytes(90)], "gw0") == ("", None)
    # What takes the place of a file needs no room next to it.
    assert desk.answer(["write", f"{tmp_path}/cases/a", 0, 95, bytes(95)], "gw0") == ("", None)
    problem, _ = desk.answer(["write", f"{tmp_path}/cases/b", 0, 6, bytes(6)], "gw0")
    assert problem == "no space left: the limit is 100 B; raise msprobe_save_limit"
