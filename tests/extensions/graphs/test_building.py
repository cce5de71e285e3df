"""A dump's records and its construct.json as a tree of modules and calls."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.errors import DumpError
from pytest_msprobe.extensions.graphs.nodes import MAX_DEPTH, Kind, build_graph, resolve_parents
from tests.support.dumps.dump_files import Json, tensor, write_dump
from tests.support.dumps.graphs import CALL, graph_of


def written(parents: dict[str, str | None]) -> dict[str, str | None]:
    return resolve_parents(parents, lambda name: False)


class TestTheTree:
    def test_it_holds_each_call_below_its_module(self, tmp_path: Path) -> None:
        model, call = "Module.net.Net.forward.0", "Torch.relu.0.forward"
        graph = graph_of(tmp_path, {model: None, "Module.net.fc.Linear.forward.0": model, call: model})
        assert graph.nodes[model].children == ["Module.net.fc.Linear.forward.0", call]
        assert graph.path(call) == ["DefaultModel", model, call]
        assert [graph.nodes[name].kind for name in graph.path(call)] == [Kind.MODULE, Kind.MODULE, Kind.API]

    def test_calls_that_follow_each_other_outside_of_modules_are_collected(self, tmp_path: Path) -> None:
        names = ["Torch.add.0.forward", "Torch.add.1.forward", "Module.a.A.forward.0", "Torch.mul.0.forward"]
        graph = graph_of(tmp_path, dict.fromkeys(names))
        assert graph.nodes["DefaultModel"].children == ["Apis_Between_Modules.0", *names[2:]]
        assert graph.nodes["Apis_Between_Modules.0"].children == names[:2]
        assert graph.nodes["Apis_Between_Modules.0"].kind is Kind.COLLECTION

    def test_children_come_before_their_parents_when_asked_so(self, tmp_path: Path) -> None:
        graph = graph_of(tmp_path, {"Module.a.A.forward.0": None, "Torch.add.0.forward": "Module.a.A.forward.0"})
        names = [node.name for node in graph.children_first()]
        assert names == ["Torch.add.0.forward", "Module.a.A.forward.0", "DefaultModel"]

    def test_names_of_our_own_give_way_to_those_of_a_dump(self, tmp_path: Path) -> None:
        names = ["DefaultModel", "Torch.add.0.forward", "Torch.add.1.forward", "Apis_Between_Modules.0"]
        graph = graph_of(tmp_path, dict.fromkeys(names), records={})
        assert graph.root == "DefaultModel_"
        assert set(names) < set(graph.nodes)

    def test_gradients_of_parameters_lie_in_the_last_backward_call_of_their_module(self, tmp_path: Path) -> None:
        gradients = "Module.fc.Linear.parameters_grad"
        parents = dict.fromkeys(f"Module.fc.Linear.backward.{i}" for i in range(3))
        graph = graph_of(tmp_path, parents, {**dict.fromkeys(parents, CALL), gradients: {"weight": [tensor(2)]}})
        assert graph.nodes[gradients].parent == "Module.fc.Linear.backward.2"

    def test_a_dump_of_structure_needs_no_records(self, tmp_path: Path) -> None:
        parents = {"Module.a.A.forward.0": None, "Torch.add.0.forward": "Module.a.A.forward.0"}
        assert set(graph_of(tmp_path, parents, {}, task="structure").nodes) == {"DefaultModel", *parents}

    @pytest.mark.parametrize("content", [{}, None], ids=["empty", "missing"])
    def test_a_dump_that_shows_no_modules_is_refused(self, tmp_path: Path, content: Json | None) -> None:
        path = write_dump(tmp_path, {"Torch.add.0.forward": CALL}, parents=content)
        with pytest.raises(DumpError, match=r"construct\.json.*record at level L0 or mix"):
            build_graph(read_dump(path), Surroundings(tmp_path))


class TestMicroSteps:
    def test_a_forward_call_after_a_backward_one_begins_the_next(self, tmp_path: Path) -> None:
        names = [f"Module.a.A.{way}.{i}" for i in range(3) for way in ("forward", "backward")]
        inner = "Torch.add.0.forward"
        graph = graph_of(tmp_path, {**dict.fromkeys(names), inner: names[4]})
        assert [graph.nodes[name].micro_step for name in names] == [0, 0, 1, 1, 2, 2]
        assert graph.nodes[inner].micro_step == 2
        assert graph.micro_steps == 3

    def test_what_megatron_recorded_of_them_counts(self, tmp_path: Path) -> None:
        parents = {"Module.a.A.forward.0": [None, 0], "Module.a.A.forward.1": [None, 1]}
        graph = graph_of(tmp_path, parents | {"megatron_micro_step_number": 2}, dict.fromkeys(parents, CALL))
        assert [graph.nodes[name].micro_step for name in parents] == [0, 1]


class TestWhatTheFileSaysWrongly:
    def test_a_backward_call_without_parent_lies_next_to_its_forward_call(self) -> None:
        parents: dict[str, str | None] = {
            "Module.a.A.forward.0": None,
            "Torch.add.0.forward": "Module.a.A.forward.0",
            "Module.a.A.backward.0": None,
            "Torch.add.0.backward": None,
        }
        assert written(parents)["Torch.add.0.backward"] == "Module.a.A.backward.0"

    def test_a_backward_call_in_a_module_that_is_not_around_it_lies_next_to_its_forward_call(self) -> None:
        parents: dict[str, str | None] = {
            "Module.a.A.forward.0": None,
            "Module.a.relu.ReLU.forward.0": "Module.a.A.forward.0",
            "Module.b.B.backward.0": None,
            "Module.a.relu.ReLU.backward.0": "Module.b.B.backward.0",
            "Module.a.A.backward.0": None,
        }
        assert written(parents)["Module.a.relu.ReLU.backward.0"] == "Module.a.A.backward.0"

    def test_a_recomputed_call_lies_in_the_backward_pass(self, tmp_path: Path) -> None:
        again = CALL | {"is_recompute": True}
        records = {
            "Module.a.A.forward.0": CALL,
            "Module.a.fc.Linear.forward.0": CALL,
            "Module.a.fc.Linear.forward.1": again,
            "Torch.add.1.forward": again,
            "Module.a.A.backward.0": {"input": [], "output": []},
        }
        parents = dict.fromkeys(records) | {
            "Module.a.fc.Linear.forward.0": "Module.a.A.forward.0",
            "Torch.add.1.forward": "Module.a.A.forward.0",
        }
        graph = graph_of(tmp_path, parents, records)
        assert graph.nodes["Module.a.A.backward.0"].children == ["Module.a.fc.Linear.forward.1", "Torch.add.1.forward"]

    def test_a_recomputed_call_lies_in_the_backward_pass_that_runs(self, tmp_path: Path) -> None:
        inner = [f"Module.a.fc.Linear.forward.{i}" for i in range(4)]
        parents: Json = {}
        for i, outer in enumerate(("Module.a.A.forward.0", "Module.a.A.forward.1")):
            parents |= {inner[2 * i]: outer, outer: None, inner[2 * i + 1]: None, f"Module.a.A.backward.{i}": None}
        records = {name: CALL | {"is_recompute": name in inner[1::2]} for name in parents}
        graph = graph_of(tmp_path, parents, records)
        assert [graph.nodes[name].parent for name in inner[1::2]] == ["Module.a.A.backward.0", "Module.a.A.backward.1"]
        assert [graph.nodes[name].micro_step for name in inner] == [0, 0, 1, 1]

    def test_a_parent_without_an_entry_is_one_at_the_top(self) -> None:
        assert written({"Torch.add.0.forward": "Module.a.A.forward.0"})["Module.a.A.forward.0"] is None

    @given(st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.sampled_from("abcdefgh")))
    def test_every_way_up_ends(self, parents: dict[str, str | None]) -> None:
        found = written(parents)
        assert set(found) >= set(parents)
        for name in found:
            above: str | None = name
            for _ in range(len(found)):
                above = found[above] if above is not None else None
            assert above is None

    def test_what_is_nested_too_deeply_is_put_at_the_top(self) -> None:
        chain = {f"m{i}": f"m{i - 1}" if i else None for i in range(3 * MAX_DEPTH)}
        found = written(chain)
        assert [name for name, parent in found.items() if parent is None] == ["m0", "m401", "m802"]
