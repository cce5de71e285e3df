from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from msprobe_hooks.errors import MonitorError
from msprobe_hooks.extensions.monitor.series.conversion import csv2tensorboard_by_step
from msprobe_hooks.extensions.monitor.series.writer import Row, open_writer
from tests.support.requirements import require

require(find_spec("tensorboard"), "tensorboard")

FIRST, SECOND, OTHER = (
    "Dec03_21-34-40-rank0-1d6d9d83",
    "Dec04_01-00-00-rank0-2d6d9d83",
    "Dec03_21-34-40-rank1-3d6d9d83",
)


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return steps and values by tag, as tensorboard's own reader finds them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder))
        events.Reload()
        tags = events.Tags()["scalars"]
        return {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in tags}


@pytest.fixture(autouse=True)
def _warnings_of_tensorboard() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def write(folder: Path, format: str, *rows: Row) -> None:  # noqa: A002
    writer = open_writer(format, folder, ["norm", "max"], ndigits=6, steps_per_file=10)
    writer.add(rows)
    writer.flush()
    writer.close()


def test_events_have_msprobes_tags(tmp_path):
    write(
        tmp_path / FIRST,
        "tensorboard",
        Row("actv", 1, ".input", 0, 3, (0.5, 2.0)),
        Row("exp_avg", 0, "w", 0, None, (0.25, 1.0)),
        Row("exp_avg", 0, "w", 1, None, (0.75, 1.0)),
    )
    assert scalars(tmp_path / FIRST) == {
        "1:.input:3/rank0/actv_norm": [(0, 0.5)],
        "1:.input:3/rank0/actv_max": [(0, 2.0)],
        "0:w/rank0/exp_avg_norm": [(0, 0.25), (1, 0.75)],
        "0:w/rank0/exp_avg_max": [(0, 1.0), (1, 1.0)],
    }


def test_a_distribution_is_a_picture_of_all_steps_with_the_lowest_bin_on_top(tmp_path):
    from PIL import Image
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lowest, highest = ((8.0, *[0.0] * 29), (*[0.0] * 28, 2.0, 4.0))
    write(
        tmp_path / FIRST,
        "tensorboard",
        *(Row("adam_update", 0, "w", step, None, (0.0, 0.0), each) for step, each in enumerate((lowest, highest))),
    )
    events = EventAccumulator(str(tmp_path / FIRST))
    events.Reload()
    (image,) = events.Images("0:w/rank0/adam_update")
    pixels = np.asarray(Image.open(BytesIO(image.encoded_image_string)).convert("RGB"))
    height, width, _ = pixels.shape
    assert (image.step, height % 30, width % 2) == (1, 0, 0)
    cells = pixels[:: height // 30, :: width // 2].tolist()
    black, white = [11, 0, 0], [255, 255, 255]
    # matplotlib's hot at 0.5: red is full, green at (0.5 - 0.365079) / (0.746032 - 0.365079).
    assert [cells[0], cells[15], cells[28], cells[29]] == [
        [white, black],
        [black, black],
        [black, [255, 90, 0]],
        [black, white],
    ]


@pytest.fixture
def run(tmp_path):
    write(tmp_path / "run" / FIRST, "csv", *(Row("actv", 0, "m.input", step, 1, (step / 2, 1.0)) for step in range(4)))
    write(tmp_path / "run" / SECOND, "csv", *(Row("actv", 0, "m.input", step, 1, (0.0, 1.0)) for step in (3, 4)))
    write(tmp_path / "run" / OTHER, "csv", Row("param", 0, "w", 7, None, (0.5, 1.0)))
    return tmp_path / "run"


def test_a_run_is_converted_by_rank_and_task_with_its_starts_joined(run, tmp_path):
    out = csv2tensorboard_by_step(run, output_dirpath=tmp_path / "out")
    assert sorted(path.relative_to(out).parent.as_posix() for path in out.rglob("events*")) == [
        "rank0/actv",
        "rank1/param",
    ]
    assert scalars(out / "rank0/actv") == {
        "vp0:m.input:micro1/norm": [(0, 0.0), (1, 0.5), (2, 1.0), (3, 0.0), (4, 0.0)],
        "vp0:m.input:micro1/max": [(step, 1.0) for step in range(5)],
    }
    assert scalars(out / "rank1/param") == {"vp0:w/norm": [(7, 0.5)], "vp0:w/max": [(7, 1.0)]}


def test_only_starts_between_the_times_and_tasks_of_the_list_are_converted(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = csv2tensorboard_by_step(run, "Dec03_22-00-00", "Dec31_00-00-00", data_type_list=["actv", "param"])
    assert out.name.endswith("-csv2tensorboard_by_step")
    assert [path.relative_to(out).parent.as_posix() for path in out.rglob("events*")] == ["rank0/actv"]
    assert scalars(out / "rank0/actv")["vp0:m.input:micro1/norm"] == [(3, 0.0), (4, 0.0)]


@pytest.mark.slow
def test_several_ranks_are_converted_at_a_time(run, tmp_path):
    out = csv2tensorboard_by_step(run, process_num=2, output_dirpath=tmp_path / "out")
    assert {path.name for path in out.iterdir()} == {"rank0", "rank1"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"data_type_list": ["loss"]}, "data_type_list holds 'loss'; allowed: .*actv_grad"),
        ({"process_num": 0}, "process_num is 0; allowed: an integer >= 1"),
        ({"time_start": "yesterday"}, "'yesterday' is not a time of a folder; write it as in Dec03_21-34-40"),
    ],
)
def test_a_wrong_option_is_named_with_what_is_allowed(run, options, problem):
    with pytest.raises(ValueError, match=problem):
        csv2tensorboard_by_step(run, **options)


def test_a_time_in_which_nothing_started_is_reported(run):
    with pytest.raises(MonitorError, match="started from Dec05_00-00-00 to any time"):
        csv2tensorboard_by_step(run, time_start="Dec05_00-00-00")
