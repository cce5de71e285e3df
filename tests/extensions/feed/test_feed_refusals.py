"""Dumps, names and files that are not fed, and the errors that say why."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from msprobe_hooks import ConfigError, DumpError, feed, record
from tests.support.trainings.fed import Model, batch, recording


@pytest.mark.parametrize(
    ("task", "options", "reason"),
    [
        ("statistics", {}, "has statistics of the inputs of .* and not their values; record with task tensor"),
        ("statistics", {"summary_mode": "md5"}, "has checksums of the inputs"),
        ("structure", {}, "recorded with task structure, which has no values"),
    ],
)
def test_a_dump_without_values_is_refused_with_the_reason(tmp_path, task, options, reason):
    model = Model()
    with recording(tmp_path / "golden", model, task=task, **options):
        model(batch(0))
    with pytest.raises(DumpError, match=reason), feed(tmp_path / "golden", ["layers.2"]):
        pass


def test_a_dump_of_calls_alone_is_refused_with_the_reason(tmp_path):
    with record(tmp_path / "golden", task="tensor"):
        torch.tanh(batch(0))
    with pytest.raises(DumpError, match="level L1, which has no inputs of modules"), feed(tmp_path / "golden", ["a"]):
        pass


def test_a_dump_of_another_framework_is_refused(golden):
    with pytest.raises(ConfigError, match="not fed from"), feed(mindspore_dump(golden), ["layers.2"]):
        pass


def mindspore_dump(golden: Path) -> Path:
    path = golden / "step0" / "rank" / "dump.json"
    path.write_text(path.read_text().replace('"framework":"pytorch"', '"framework":"mindspore"'))
    return path


def test_names_of_which_no_call_was_recorded_are_refused_with_the_likely_one(golden):
    with pytest.raises(ConfigError, match=r"no call of '2' in .*; did you mean 'layers\.2'"), feed(golden, ["2"]):
        pass


@pytest.mark.parametrize("names", [[], "layers.2", [""], [3]])
def test_names_that_are_no_list_of_texts_are_refused(golden, names):
    with pytest.raises(ConfigError, match="a list of names of modules"), feed(golden, names):
        pass


def test_a_file_outside_of_the_dump_is_not_read(golden, tmp_path):
    path = golden / "step0" / "rank" / "dump.json"
    torch.save(torch.zeros(2, 4), tmp_path / "elsewhere.pt")
    text = path.read_text().replace("Module.layers.2.Block.forward.0.input.0.pt", "../../../../elsewhere.pt")
    path.write_text(text)
    with feed(golden, ["layers.2"]), pytest.raises(DumpError, match="leads out of it"):
        Model()(batch(0))


def test_a_file_with_a_pickled_object_is_not_read(golden):
    file = golden / "step0/rank/dump_tensor_data/Module.layers.2.Block.forward.0.input.0.pt"
    file.unlink()
    torch.save({"path": Path()}, file)
    with feed(golden, ["layers.2"]), pytest.raises(DumpError, match="not a readable tensor file"):
        Model()(batch(0))


def test_a_missing_file_is_named(golden):
    file = golden / "step0/rank/dump_tensor_data/Module.layers.2.Block.forward.0.input.0.pt"
    file.unlink()
    with feed(golden, ["layers.2"]), pytest.raises(DumpError, match=f"{file.name}: no such file"):
        Model()(batch(0))
