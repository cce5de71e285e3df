"""Graphs as the files that msprobe's viewer reads."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_msprobe.commands.main import main
from tests.support.dumps.dump_files import Json, forward, tensor, tensor_around, value, write_dump

ACROSS = Path(__file__).parents[2] / "data" / "across_frameworks"
MODEL, LINEAR = "Module.net.Net.forward.0", "Functional.linear.0.forward"
PARENTS = {MODEL: None, LINEAR: MODEL}
FRAMES = [
    "File /usr/lib/python3/site-packages/torch/nn/modules/module.py, line 9, in _call_impl, \n return forward()",
    "File train.py, line 3, in forward, \n y = self.fc(x)",
    "File train.py, line 9, in main, \n loss = net(x)",
]


def run(folder: Path, records: Json, parents: Json = PARENTS, **files: Any) -> Path:
    return write_dump(folder, records, parents=parents, level="mix", **files)


def records(at: float = 1.0, **fields: Any) -> Json:
    call = forward(tensor_around(2, at=1.0), output=[tensor_around(2, at=at, **fields)])
    return {LINEAR: call, MODEL: call}


def draw(*words: str | Path) -> Path:
    folder = Path(words[0]) / "graphs"
    assert main(["graph", *map(str, words[1:]), "-o", str(folder)]) == 0
    (file,) = folder.iterdir()
    return file


def rows(file: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(query).fetchall()


def nodes(file: Path, column: str, source: str = "NPU") -> dict[str, Any]:
    return dict(rows(file, f"SELECT node_name, {column} FROM tb_nodes WHERE data_source = '{source}'"))


class TestOneRun:
    def test_it_is_one_file_of_all_steps_and_ranks(self, tmp_path: Path) -> None:
        for step in (0, 2):
            for rank in (0, 1):
                run(tmp_path / f"run/step{step}/rank{rank}", records())
        file = draw(tmp_path, tmp_path / "run")
        assert rows(file, "SELECT graph_type, rank_list, step_list FROM tb_config") == [("build", "[0,1]", "[0,2]")]
        assert len(rows(file, "SELECT * FROM tb_nodes")) == 4 * 3

    def test_children_are_numbered_before_their_parents(self, tmp_path: Path) -> None:
        file = draw(tmp_path, run(tmp_path, records()))
        assert nodes(file, "node_order") == {LINEAR: 0, MODEL: 1, "DefaultModel": 2}
        assert nodes(file, "up_node")["DefaultModel"] == ""

    def test_values_are_words_in_all_their_digits(self, tmp_path: Path) -> None:
        file = draw(tmp_path, run(tmp_path, records(at=1 / 3, requires_grad=True)))
        output = json.loads(nodes(file, "output_data")[LINEAR])[f"{LINEAR}.output.0"]
        assert output["Max"] == str(1 / 3)
        assert output["shape"] == "[2]"
        assert output["requires_grad"] == "True"

    @pytest.mark.parametrize(("words", "shown"), [((), FRAMES[1:2]), (("--complete-stack",), FRAMES)])
    def test_a_node_shows_one_line_of_the_users_program_or_all(
        self, tmp_path: Path, words: tuple[str, ...], shown: list[str]
    ) -> None:
        file = draw(tmp_path, run(tmp_path, records(), stacks={LINEAR: FRAMES}), *words)
        stacks = dict(rows(file, "SELECT node_name, stack_info FROM tb_nodes JOIN tb_stack ON stack_id = tb_stack.id"))
        assert json.loads(stacks[LINEAR]) == shown
        assert set(stacks) == {LINEAR, MODEL, "DefaultModel"}

    def test_levels_of_overflow_are_the_searchs(self, tmp_path: Path) -> None:
        found = {"Torch.empty.0.forward": forward(tensor(2), output=[tensor(2, high="Infinity")])}
        found[LINEAR] = found["Torch.empty.0.forward"]
        file = draw(tmp_path, run(tmp_path, found, dict.fromkeys(found)), "--overflow")
        assert nodes(file, "overflow_level") == {
            LINEAR: "critical", "Torch.empty.0.forward": None, "Apis_Between_Modules.0": None, "DefaultModel": None,
        }  # fmt: skip

    def test_the_first_call_that_is_given_nan_is_critical(self, tmp_path: Path) -> None:
        nan, after = tensor(2, high="NaN"), "Torch.relu.0.forward"
        found = {LINEAR: forward(nan, output=[nan]), after: forward(nan, output=[nan])}
        levels = nodes(draw(tmp_path, run(tmp_path, found, dict.fromkeys(found)), "--overflow"), "overflow_level")
        assert (levels[LINEAR], levels[after]) == ("critical", "high")

    def test_a_dump_of_structure_has_nodes_without_values(self, tmp_path: Path) -> None:
        file = draw(tmp_path, run(tmp_path, {}, task="structure"))
        assert nodes(file, "input_data") == {LINEAR: "{}", MODEL: "{}", "DefaultModel": "{}"}

    def test_nothing_of_a_malformed_record_is_reported(self, tmp_path: Path) -> None:
        file = draw(
            tmp_path, run(tmp_path, {**records(), LINEAR: {"output": [{"type": "torch.Tensor", "dtype": "x"}]}})
        )
        assert nodes(file, "output_data")[LINEAR] == "{}"

    def test_hostile_names_are_data(self, tmp_path: Path) -> None:
        name = "Torch.<script>'); DROP TABLE tb_nodes;--\x1b.0.forward"
        file = draw(tmp_path, run(tmp_path, {name: forward(value("\ud800"))}, {name: None}))
        assert "Torch.<script>'); DROP TABLE tb_nodes;--\\x1b.0.forward" in nodes(file, "node_name")

    def test_the_json_form_says_the_same(self, tmp_path: Path) -> None:
        for rank in (0, 1):
            run(tmp_path / f"run/step0/rank{rank}", records())
        folder = tmp_path / "json"
        assert main(["graph", str(tmp_path / "run"), "-o", str(folder), "--format", "json"]) == 0
        names = sorted(path.name.rpartition("_")[0] for path in folder.iterdir())
        assert names == ["build_rank0", "build_rank1"]
        graph = json.loads(next(folder.glob("*rank1*")).read_text())
        assert graph["root"] == "DefaultModel"
        assert graph["node"]["DefaultModel"]["upnode"] == "None"
        assert graph["node"][MODEL]["subnodes"] == [LINEAR]
        assert graph["node"][LINEAR]["output_data"][f"{LINEAR}.output.0"]["Max"] == "1.0"


class TestRanks:
    def test_partners_of_communication_are_reported_with_what_they_do(self, tmp_path: Path) -> None:
        send, receive = "Distributed.send.0.forward", "Distributed.recv.0.forward"
        everyone = "Distributed.all_reduce.0.forward"
        group = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "0"}
        reduce = forward(tensor(2), group=group)
        first = {send: forward(tensor(2), dst=value(1)), everyone: reduce}
        second = {receive: forward(tensor(2), src=value(0)), everyone: reduce}
        for rank, calls in enumerate((first, second)):
            run(tmp_path / f"run/step0/rank{rank}", calls, dict.fromkeys(calls))
        file = draw(tmp_path, tmp_path / "run")
        found = {
            (rank, name): json.loads(text)
            for rank, name, text in rows(file, "SELECT rank, node_name, matched_distributed FROM tb_nodes")
            if text != "{}"
        }
        assert found == {
            (0, send): {"communications_type": "send", "nodes_info": {"1": ["Nan", receive]}},
            (1, receive): {"communications_type": "receive", "nodes_info": {"0": ["Nan", send]}},
            (0, everyone): {"communications_type": "send_receive", "nodes_info": {"1": ["Nan", everyone]}},
            (1, everyone): {"communications_type": "send_receive", "nodes_info": {"0": ["Nan", everyone]}},
        }


class TestTwoRuns:
    def test_a_node_links_to_its_partner_by_the_way_from_the_root(self, tmp_path: Path) -> None:
        target, golden = (run(tmp_path / side, records()) for side in ("target", "golden"))
        file = draw(tmp_path, target, "--golden", golden)
        for source in ("NPU", "Bench"):
            assert json.loads(nodes(file, "matched_node_link", source)[LINEAR]) == ["DefaultModel", MODEL, LINEAR]

    def test_colours_are_the_verdicts(self, tmp_path: Path) -> None:
        add, more = "Torch.add.0.forward", "Torch.mul.0.forward"
        same = forward(tensor_around(2, at=1.0))
        target = run(tmp_path / "target", records(at=2.0) | {add: same, more: same}, PARENTS | {add: None, more: None})
        golden = run(tmp_path / "golden", records() | {add: same}, PARENTS | {add: None})
        file = draw(tmp_path, target, "--golden", golden)
        found = nodes(file, "precision_index")
        assert (found[LINEAR], found[add], found[more]) == (1.0, 0.0, None)
        assert found["Apis_Between_Modules.0"] == 0.0
        assert nodes(file, "matched_node_link")[more] == "[]"
        (colours,) = rows(file, "SELECT node_colors FROM tb_config")[0]
        (error,) = (one["value"] for one in json.loads(colours).values() if one["accuracy_level"] == "error")
        assert error[0] <= 1.0 < error[1]

    def test_values_of_the_target_show_how_they_differ(self, tmp_path: Path) -> None:
        target, golden = run(tmp_path / "target", records(at=2.0)), run(tmp_path / "golden", records())
        file = draw(tmp_path, target, "--golden", golden)
        output = json.loads(nodes(file, "output_data")[LINEAR])[f"{LINEAR}.output.0"]
        assert (output["Max diff"], output["MaxRelativeErr"], output["Result"]) == ("1.0", "100.0%", "error")
        assert "Max diff" not in json.loads(nodes(file, "output_data", "Bench")[LINEAR])[f"{LINEAR}.output.0"]

    def test_checksums_are_a_task_of_their_own(self, tmp_path: Path) -> None:
        target, golden = (run(tmp_path / side, records(md5=side)) for side in ("target", "golden"))
        file = draw(tmp_path, target, "--golden", golden)
        assert rows(file, "SELECT task FROM tb_config") == [("md5",)]
        assert nodes(file, "precision_index")[LINEAR] == 1.0

    def test_files_of_tensors_are_measured_element_by_element(self, tmp_path: Path) -> None:
        name = f"{LINEAR}.output.0"
        for side, second in (("target", 2.5), ("golden", 2.0)):
            call = forward(tensor_around(2), output=[tensor_around(2, data_name=f"{name}.pt")])
            run(tmp_path / side, {LINEAR: call}, {LINEAR: None}, task="tensor")
            (tmp_path / side / "dump_tensor_data").mkdir()
            torch.save(torch.tensor([1.0, second]), tmp_path / side / "dump_tensor_data" / f"{name}.pt")
        file = draw(tmp_path, tmp_path / "target", "--golden", tmp_path / "golden")
        assert rows(file, "SELECT task FROM tb_config") == [("all",)]
        output = json.loads(nodes(file, "output_data")[LINEAR])[name]
        assert (output["MaxAbsErr"], output["Worst index"], output["data_name"]) == ("0.5", "[1]", f"{name}.pt")
        assert nodes(file, "dump_data_dir")[LINEAR] == str(tmp_path / "target" / "dump_tensor_data")

    def test_calls_of_other_numbers_are_partners_where_that_is_asked_for(self, tmp_path: Path) -> None:
        later = "Functional.linear.5.forward"
        target = run(tmp_path / "target", records())
        golden = run(
            tmp_path / "golden", {later: records()[LINEAR], MODEL: records()[MODEL]}, {MODEL: None, later: MODEL}
        )
        file = draw(tmp_path, target, "--golden", golden, "--fuzzy")
        assert json.loads(nodes(file, "matched_node_link")[LINEAR]) == ["DefaultModel", MODEL, later]

    def test_layers_of_other_names_are_partners_where_a_mapping_says_so(self, tmp_path: Path) -> None:
        def names(layer: str) -> list[str]:
            return [MODEL, f"Module.net.{layer}.Linear.forward.0", LINEAR]

        for side, layer in (("target", "fc"), ("golden", "dense")):
            model, inner, call = names(layer)
            body = records()[LINEAR]
            run(tmp_path / side, dict.fromkeys(names(layer), body), {model: None, inner: model, call: inner})
        mapping = tmp_path / "layers.yaml"
        mapping.write_text("layer:\n  Net:\n    fc: dense\n")
        file = draw(tmp_path, tmp_path / "target", "--golden", tmp_path / "golden", "--mapping", mapping)
        assert json.loads(nodes(file, "matched_node_link")[LINEAR]) == ["DefaultModel", *names("dense")]

    def test_a_run_of_mindspore_stands_next_to_one_of_pytorch(self, tmp_path: Path) -> None:
        file = draw(tmp_path, ACROSS / "mindspore", "--golden", ACROSS / "pytorch")
        link = json.loads(nodes(file, "matched_node_link")["Cell.block.Block.forward.0"])
        assert link == ["DefaultModel", "Module.block.Block.forward.0"]

    def test_golden_nodes_are_in_the_micro_step_of_their_partner(self, tmp_path: Path) -> None:
        names = [f"Module.a.A.{way}.{i}" for i in (0, 1) for way in ("forward", "backward")]
        bodies = {name: records()[MODEL] if "forward" in name else {"input": [], "output": []} for name in names}
        target, golden = (run(tmp_path / side, bodies, dict.fromkeys(names)) for side in ("target", "golden"))
        file = draw(tmp_path, target, "--golden", golden)
        assert rows(file, "SELECT micro_steps FROM tb_config") == [(2,)]
        for source in ("NPU", "Bench"):
            assert [nodes(file, "micro_step_id", source)[name] for name in names] == [0, 0, 1, 1]


def test_dumps_of_one_step_and_rank_are_drawn_into_folders_of_their_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(tmp_path / "run" / name, records())
    assert main(["graph", str(tmp_path / "run"), "-o", str(tmp_path / "graphs")]) == 0
    assert sorted(path.parent.name for path in (tmp_path / "graphs").rglob("*.vis.db")) == ["a", "b"]


class TestWhatIsRefused:
    @pytest.mark.parametrize("form", ["db", "json"])
    def test_a_folder_that_holds_graphs_already(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str
    ) -> None:
        file = draw(tmp_path, run(tmp_path, records()))
        words = ["graph", str(tmp_path / "dump.json"), "-o", str(file.parent), "--format", form]
        assert main(words) == 2
        assert f"{file.parent}: holds {file.name} already" in capsys.readouterr().err

    def test_ranks_of_one_side_only(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        for side, ranks in (("target", 2), ("golden", 1)):
            for rank in range(ranks):
                run(tmp_path / side / f"rank{rank}", records())
        words = [
            "graph",
            str(tmp_path / "target"),
            "--golden",
            str(tmp_path / "golden"),
            "-o",
            str(tmp_path / "graphs"),
        ]
        assert main(words) == 2
        assert "the golden run has no dump of rank 1" in capsys.readouterr().err
        assert not list((tmp_path / "graphs").glob("*")) if (tmp_path / "graphs").exists() else True

    def test_a_damaged_stack_file(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run(tmp_path, records())
        (tmp_path / "stack.json").write_text("{[")
        assert main(["graph", str(tmp_path), "-o", str(tmp_path / "graphs")]) == 2
        assert "stack.json is damaged" in capsys.readouterr().err

    def test_an_empty_construct_file_leaves_no_file_behind(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        run(tmp_path, records(), {})
        assert main(["graph", str(tmp_path), "-o", str(tmp_path / "graphs")]) == 2
        assert "construct.json: names no module of any record" in capsys.readouterr().err
        assert not list((tmp_path / "graphs").iterdir())


def test_an_unknown_format_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["graph", "--format", "zip", "dump"])
    assert "--format 'zip': not one of db, json\n" in capsys.readouterr().err
