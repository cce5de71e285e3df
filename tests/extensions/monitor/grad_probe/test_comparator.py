from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from msprobe_hooks import GradComparator
from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.grad_probe import sign_maps
from tests.support.requirements import require


def write_rank(folder: Path, steps: dict[int, list[int]]) -> None:
    """Write the signs of a weight and, at step 1 alone, of an expert."""
    for step, signs in steps.items():
        names = ["w", "a/b"] if step == 1 else ["w"]
        (folder / f"step{step}").mkdir(parents=True)
        (folder / f"grad_summary_{step}.csv").write_text("param_name\r\n" + "".join(f"{name}\r\n" for name in names))
        for name in names:
            np.save(folder / f"step{step}" / name.replace("/", "%2F"), np.array(signs, dtype=bool))


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    write_rank(tmp_path / "a" / "rank0", {0: [1, 0, 1], 1: [1, 0, 1]})
    write_rank(tmp_path / "b" / "rank0", {0: [1, 1, 1], 1: [1, 0, 1]})
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_maps, "find_spec", lambda _: None)


@pytest.mark.usefixtures("without_pictures")
def test_similarities_are_written_as_msprobe_writes_them(runs: tuple[Path, Path], tmp_path: Path) -> None:
    GradComparator.compare_distributed(*runs, tmp_path / "out")
    assert (tmp_path / "out" / "rank0" / "similarities.csv").read_bytes() == (
        b"\xef\xbb\xbfstep,0,1\r\nw,0.6666666666666666,1.0\r\na/b,,1.0\r\nsummary,0.6666666666666666,1.0\r\n"
    )


@pytest.mark.usefixtures("without_pictures")
def test_without_matplotlib_one_line_says_that_pictures_are_left_out(
    runs: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    GradComparator.compare(runs[0] / "rank0", runs[1] / "rank0", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["similarities.csv"]
    assert caplog.text.count("pip install pytest-msprobe[pictures]") == 1


def test_a_picture_is_drawn_for_each_parameter_and_the_summary(runs: tuple[Path, Path], tmp_path: Path) -> None:
    require(find_spec("matplotlib"), "matplotlib")
    GradComparator.compare(str(runs[0] / "rank0"), str(runs[1] / "rank0"), str(tmp_path / "out"))
    pictures = tmp_path / "out" / "similarities_picture"
    assert sorted(path.name for path in pictures.iterdir()) == [
        "a%2Fb_similarities.png",
        "summary_similarities.png",
        "w_similarities.png",
    ]
    assert (pictures / "w_similarities.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("without_pictures")
def test_ranks_of_one_run_alone_are_left_out_and_said_to_be(
    runs: tuple[Path, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_rank(runs[0] / "rank1", {0: [1, 0, 1]})
    GradComparator.compare_distributed(*runs, tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["rank0"]
    assert "has them: [1]" in caplog.text


def test_runs_without_a_common_rank_say_which_they_have(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (runs[1] / "rank0").rename(runs[1] / "rank3")
    with pytest.raises(MonitorError, match=r"no rank is in both runs: .*a has \[0\], .*b has \[3\]"):
        GradComparator.compare_distributed(*runs, tmp_path / "out")


@pytest.mark.parametrize("name", ["missing", "."])
def test_a_folder_that_is_no_run_is_named(runs: tuple[Path, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(MonitorError, match=r"cannot be read|holds no folder rank<N>"):
        GradComparator.compare_distributed(runs[0], tmp_path / name, tmp_path / "out")


@pytest.mark.usefixtures("without_pictures")
def test_a_folder_that_cannot_be_written_is_named(runs: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(MonitorError, match="out: cannot be written"):
        GradComparator.compare(runs[0] / "rank0", runs[1] / "rank0", tmp_path / "out")
