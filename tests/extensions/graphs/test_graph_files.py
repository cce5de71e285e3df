"""Options of ``pytest-msprobe graph`` that say how two runs are compared, and where inf and nan are harmless."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pytest_msprobe.commands.main import main
from tests.support.dumps.dump_files import forward, tensor, write_dump

NAMES = ["Module.net.Net.forward.0", "Torch.add.0.forward", "Torch.add.1.forward"]
PARENTS = {NAMES[0]: None, NAMES[1]: NAMES[0], NAMES[2]: NAMES[0]}


def nodes(folder: Path, column: str) -> dict[str, Any]:
    (file,) = folder.glob("*.vis.db")
    with closing(sqlite3.connect(file)) as connection:
        return dict(connection.execute(f"SELECT node_name, {column} FROM tb_nodes WHERE data_source = 'NPU'"))


def draw(*words: Path | str) -> int:
    return main(["graph", *map(str, words)])


def write_run(folder: Path, names: list[str], high: float | str = 1.0) -> Path:
    calls = {name: forward(tensor(2), output=[tensor(2, high=high)]) for name in names}
    parents = {name: None if name == names[0] else names[0] for name in names}
    return write_dump(folder, calls, parents=parents, level="mix")


def test_names_of_a_mapping_file_are_applied(tmp_path: Path) -> None:
    target = write_run(tmp_path / "target", NAMES)
    golden = write_run(tmp_path / "golden", [*NAMES[:2], "Torch.mine.0.forward"])
    mapping = tmp_path / "names.yaml"
    mapping.write_text(f"data: {{{NAMES[2]}.output.0: Torch.mine.0.forward.output.0}}\n")
    assert draw(target, "--golden", golden, "--mapping", mapping, "-o", tmp_path / "graphs") == 0
    partners = nodes(tmp_path / "graphs", "matched_node_link")
    assert json.loads(partners[NAMES[2]])[-1] == "Torch.mine.0.forward"


def test_a_transformation_turns_values_before_they_are_compared(tmp_path: Path) -> None:
    target, golden = (write_run(tmp_path / side, NAMES) for side in ("target", "golden"))
    file = tmp_path / "turned.yaml"
    file.write_text("- {match: Nothing.*.output.0, side: target, steps: [{transpose: [0, 1]}]}\n")
    assert draw(target, "--golden", golden, "--transform", file, "-o", tmp_path / "graphs") == 0
    file.write_text("- {match: 3")
    assert draw(target, "--golden", golden, "--transform", file, "-o", tmp_path / "others") == 2


def test_levels_of_overflow_follow_the_rules_of_a_file(tmp_path: Path) -> None:
    dump = write_run(tmp_path / "rank0", NAMES, high="Infinity")
    assert draw(dump, "--overflow", "-o", tmp_path / "graphs") == 0
    assert nodes(tmp_path / "graphs", "overflow_level")[NAMES[1]] == "critical"
    rules = tmp_path / "rules.yaml"
    rules.write_text("ignore_nan_inf: [{api_name: torch.add, description: '', output_ignore: [{index: 0}]}]\n")
    assert draw(dump, "--overflow", "--overflow-ignore", rules, "-o", tmp_path / "others") == 0
    assert nodes(tmp_path / "others", "overflow_level")[NAMES[1]] is None


@pytest.mark.parametrize("words", [["--mapping", "x.yaml"], ["--transform", "x.yaml"], ["--overflow-ignore", "x.yaml"]])
def test_options_without_what_they_belong_to_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").touch()
    assert draw(write_run(tmp_path / "rank0", NAMES), *words) == 2
    assert f"{words[0]} has no effect without --" in capsys.readouterr().err
