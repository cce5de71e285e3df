"""Two graphs side by side: partners of nodes, and how precise each is."""

from __future__ import annotations

from pathlib import Path

from pytest_msprobe.extensions.graphs.nodes import LEVELS, follow_micro_steps, pair_nodes, precision_indices
from tests.support.dumps.graphs import graph_of

CALLS = ["Torch.add.0.forward", "Torch.add.1.forward"]


def test_a_collection_goes_where_its_calls_went(tmp_path: Path) -> None:
    target = graph_of(tmp_path / "target", dict.fromkeys(CALLS))
    before = ["Torch.mul.0.forward", "Torch.mul.1.forward", "Module.a.A.forward.0"]
    golden = graph_of(tmp_path / "golden", dict.fromkeys([*before, *CALLS]))
    partners = pair_nodes(target, golden, {name: name for name in CALLS})
    assert partners["Apis_Between_Modules.0"] == "Apis_Between_Modules.1"
    assert partners["DefaultModel"] == "DefaultModel"


def test_a_call_without_partner_stays_alone_whatever_its_name(tmp_path: Path) -> None:
    target = graph_of(tmp_path / "target", dict.fromkeys(["Torch.add.0.forward"]))
    golden = graph_of(tmp_path / "golden", dict.fromkeys(["Torch.add.0.forward"]))
    assert pair_nodes(target, golden, {"Torch.add.0.forward": None}) == {"DefaultModel": "DefaultModel"}


def test_golden_calls_are_seen_in_the_micro_step_of_their_partner(tmp_path: Path) -> None:
    names = ["Module.a.A.forward.0", "Module.a.A.backward.0", "Module.a.A.forward.1"]
    target = graph_of(tmp_path / "target", dict.fromkeys(names))
    golden = graph_of(tmp_path / "golden", dict.fromkeys(names[::-1]))
    follow_micro_steps(target, golden, {name: name for name in names})
    assert [golden.nodes[name].micro_step for name in names] == [0, 0, 1]


def test_a_collection_is_as_precise_as_its_worst_call(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, dict.fromkeys(CALLS))
    indices = precision_indices(graph, {CALLS[0]: "pass", CALLS[1]: "warn"})
    assert indices == {CALLS[0]: 0.0, CALLS[1]: 0.5, "Apis_Between_Modules.0": 0.5}


def test_no_index_falls_out_of_the_levels() -> None:
    for index in (0.0, 0.3, 0.5, 0.6, 1.0):
        assert sum(level.low <= index < level.high for level in LEVELS) == 1
