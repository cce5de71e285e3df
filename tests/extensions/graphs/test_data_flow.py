"""The data flow that a dump shows, against programs whose flow is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.reader import read_dump
from pytest_msprobe.extensions.graphs.data_flow import Edge, find_flow
from tests.support.dumps.dump_files import Json, forward, tensor_around, write_dump

Ends = tuple[str, str, str, str]


@pytest.fixture
def flow(tmp_path: Path) -> Callable[..., list[Edge]]:
    """Return the flow of records, in modules where their parents are given."""

    def of(records: Json, parents: Json | None = None, **top: Any) -> list[Edge]:
        dump = read_dump(write_dump(tmp_path, records, **top))
        return find_flow(dump, (parents or {}).get)

    return of


def ends(edges: list[Edge]) -> list[Ends]:
    return [(edge.producer, edge.output, edge.consumer, edge.input) for edge in edges]


def made(at: float, *shape: int, **fields: Any) -> Json:
    return tensor_around(*(shape or (2, 3)), at=at, **fields)


def call(*given: float, returns: float) -> Json:
    return forward(*map(made, given), output=[made(returns)])


@st.composite
def programs(draw: st.DrawFn) -> list[list[int]]:
    """Draw, for each call, the earlier calls whose outputs it takes; -1 is a value from outside."""
    return [
        draw(st.lists(st.integers(-1, position - 1), min_size=1, max_size=3))
        for position in range(draw(st.integers(1, 12)))
    ]


def written(program: list[list[int]]) -> Json:
    """Return the records of a program in which every call returns a value of its own."""
    return {
        f"Torch.op.{place}.forward": call(*(float(source + 100) for source in sources), returns=float(place + 100))
        for place, sources in enumerate(program)
    }


def true_flow(program: list[list[int]]) -> list[Ends]:
    return [
        (f"Torch.op.{source}.forward", "output.0", f"Torch.op.{place}.forward", f"input.{position}")
        for place, sources in enumerate(program)
        for position, source in enumerate(sources)
        if source >= 0
    ]


@given(programs())
def test_a_program_of_distinct_values_shows_exactly_its_flow(
    tmp_path_factory: pytest.TempPathFactory, program: list[list[int]]
) -> None:
    path = write_dump(tmp_path_factory.mktemp("program"), written(program))
    assert ends(find_flow(read_dump(path), lambda name: None)) == true_flow(program)


@given(programs(), st.integers(1, 4))
def test_modules_around_its_calls_change_nothing(
    tmp_path_factory: pytest.TempPathFactory, program: list[list[int]], size: int
) -> None:
    calls = list(written(program).items())
    records: Json = {}
    parents: dict[str, str] = {}
    for first in range(0, len(calls), size):
        inside = dict(calls[first : first + size])
        module = f"Module.block{first}.Block.forward.0"
        given = [tensor for body in inside.values() for tensor in body["input_args"]]
        returned = [tensor for body in inside.values() for tensor in body["output"]]
        records |= inside | {module: forward(*given, output=returned)}
        parents |= dict.fromkeys(inside, module)
    path = write_dump(tmp_path_factory.mktemp("program"), records)
    assert sorted(ends(find_flow(read_dump(path), parents.get))) == sorted(true_flow(program))


def test_of_equal_values_the_nearest_is_taken_and_the_edge_is_uncertain(flow: Callable[..., list[Edge]]) -> None:
    records = {
        "Torch.ones.0.forward": call(1, returns=5),
        "Torch.ones.1.forward": call(2, returns=5),
        "Torch.relu.0.forward": call(5, returns=6),
    }
    (edge,) = flow(records)
    assert (edge.producer, edge.is_certain) == ("Torch.ones.1.forward", False)


def test_a_call_that_returns_what_it_was_given_leaves_no_doubt(flow: Callable[..., list[Edge]]) -> None:
    records = {
        "Torch.relu.0.forward": call(1, returns=5),
        "Functional.dropout.0.forward": call(5, returns=5),
        "Torch.tanh.0.forward": call(5, returns=6),
    }
    found = flow(records)
    assert [edge.producer for edge in found] == ["Torch.relu.0.forward", "Functional.dropout.0.forward"]
    assert all(edge.is_certain for edge in found)


def test_a_tensor_changed_in_place_comes_from_what_changed_it(flow: Callable[..., list[Edge]]) -> None:
    records = {
        "Torch.relu.0.forward": call(1, returns=5),
        "Tensor.add_.0.forward": call(5, 2, returns=7),
        "Torch.tanh.0.forward": call(7, returns=6),
    }
    assert [(edge.producer, edge.consumer) for edge in flow(records)] == [
        ("Torch.relu.0.forward", "Tensor.add_.0.forward"),
        ("Tensor.add_.0.forward", "Torch.tanh.0.forward"),
    ]


def test_a_view_that_was_not_recorded_is_seen_through(flow: Callable[..., list[Edge]]) -> None:
    records = {
        "Torch.relu.0.forward": call(1, returns=5.0),
        # Summed in another order, mean and norm move by a rounding.
        "Torch.tanh.0.forward": forward(made(5.0, 3, 2, Mean=1.2500001), output=[made(6)]),
        "Torch.tanh.1.forward": forward(made(5.0, 3, 2, Mean=1.3), output=[made(7)]),
    }
    assert [(edge.consumer, edge.likeness) for edge in flow(records)] == [("Torch.tanh.0.forward", "reshaped")]


def test_an_edge_ends_at_the_innermost_record_that_took_the_value(flow: Callable[..., list[Edge]]) -> None:
    outer, inner = "Module.block.Block.forward.0", "Module.block.fc.Linear.forward.0"
    records = {
        "Torch.relu.0.forward": call(1, returns=2),
        "Functional.linear.0.forward": call(2, returns=3),
        inner: call(2, returns=3),
        outer: call(2, returns=3),
        "Torch.tanh.0.forward": call(3, returns=4),
    }
    parents = {"Functional.linear.0.forward": inner, inner: outer, outer: None}
    linear = "Functional.linear.0.forward"
    assert ends(flow(records, parents)) == [
        ("Torch.relu.0.forward", "output.0", linear, "input.0"),
        (linear, "output.0", "Torch.tanh.0.forward", "input.0"),
    ]


@pytest.mark.parametrize("is_first", [True, False])
def test_modules_alone_have_edges_wherever_their_records_stand(flow: Callable[..., list[Edge]], is_first: bool) -> None:
    block, first, second = (f"Module.{name}.forward.0" for name in ("b.Block", "b.one.Linear", "b.two.Linear"))
    around = {block: call(1, returns=3)}
    inside = {first: call(1, returns=2), second: call(2, returns=3)}
    after = {"Module.head.Linear.forward.0": call(3, returns=4)}
    records = around | inside | after if is_first else inside | around | after
    assert ends(flow(records, {first: block, second: block})) == [
        (first, "output.0", second, "input.0"),
        (second, "output.0", "Module.head.Linear.forward.0", "input.0"),
    ]


def test_gradients_flow_from_outputs_to_inputs(flow: Callable[..., list[Edge]]) -> None:
    records = {
        "Torch.relu.0.forward": call(1, returns=2),
        "Torch.tanh.0.forward": call(2, returns=3),
        "Torch.tanh.0.backward": {"input": [made(7)], "output": [made(8)]},
        "Torch.relu.0.backward": {"input": [made(8)], "output": [made(9)]},
    }
    assert ends(flow(records))[1:] == [("Torch.tanh.0.backward", "output.0", "Torch.relu.0.backward", "input.0")]


def test_gradients_of_several_uses_add_up(flow: Callable[..., list[Edge]]) -> None:
    records = {
        "Torch.relu.0.forward": call(1, returns=2),
        "Torch.tanh.0.forward": call(2, returns=3),
        "Torch.exp.0.forward": call(2, returns=4),
        "Torch.exp.0.backward": {"input": [made(7)], "output": [made(8)]},
        "Torch.tanh.0.backward": {"input": [made(7)], "output": [made(10)]},
        "Torch.relu.0.backward": {"input": [made(18)], "output": [made(9)]},
    }
    summed = [edge for edge in flow(records) if edge.likeness == "summed"]
    assert {(edge.producer, edge.consumer) for edge in summed} == {
        ("Torch.tanh.0.backward", "Torch.relu.0.backward"),
        ("Torch.exp.0.backward", "Torch.relu.0.backward"),
    }


def test_nan_flows_too(flow: Callable[..., list[Edge]]) -> None:
    nan = float("nan")
    broken = made(nan)
    records = {"Torch.log.0.forward": forward(made(1), output=[broken]), "Torch.relu.0.forward": forward(broken)}
    assert ends(flow(records)) == [("Torch.log.0.forward", "output.0", "Torch.relu.0.forward", "input.0")]


def test_checksums_alone_show(flow: Callable[..., list[Edge]]) -> None:
    one, other = (
        {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "md5": text}
        for text in ("0badcafe", "600df00d")
    )
    records = {
        "Torch.relu.0.forward": forward(other, output=[one]),
        "Torch.tanh.0.forward": forward(one, output=[other]),
        "Torch.exp.0.forward": forward(other),
    }
    assert [(edge.producer, edge.consumer) for edge in flow(records)] == [
        ("Torch.relu.0.forward", "Torch.tanh.0.forward"),
        ("Torch.tanh.0.forward", "Torch.exp.0.forward"),
    ]


def test_masks_are_distinguished_by_their_files(flow: Callable[..., list[Edge]], tmp_path: Path) -> None:
    folder = tmp_path / "dump_tensor_data"
    folder.mkdir()
    for name, mask in (("a", [True, False]), ("b", [False, True])):
        np.save(folder / f"{name}.npy", np.array(mask))

    def mask(name: str) -> Json:
        fields = {"Max": True, "Min": False, "Mean": None, "Norm": None, "data_name": f"{name}.npy"}
        return {"type": "torch.Tensor", "dtype": "torch.bool", "shape": [2]} | fields

    records = {
        "Tensor.__gt__.0.forward": forward(made(1), output=[mask("a")]),
        "Tensor.__gt__.1.forward": forward(made(1), output=[mask("b")]),
        "Torch.where.0.forward": forward(mask("a")),
    }
    (edge,) = flow(records, task="tensor")
    assert (edge.producer, edge.is_certain) == ("Tensor.__gt__.0.forward", True)


def test_a_collective_gives_what_it_changed_and_takes_nothing_that_it_only_writes(
    flow: Callable[..., list[Edge]],
) -> None:
    records = {
        "Torch.zeros.0.forward": call(1, returns=0),
        "Torch.relu.0.forward": call(1, returns=3),
        "Distributed.recv.0.forward": forward(made(0), output=[made(5)], src={"type": "int", "value": 1}),
        "Distributed.all_gather_into_tensor.0.forward": forward(made(0), made(3), output=[made(6), made(3)]),
        "Torch.tanh.0.forward": call(5, returns=7),
        "Torch.tanh.1.forward": call(6, returns=8),
        "Torch.tanh.2.forward": call(3, returns=9),
    }
    assert [(edge.producer.split(".")[1], edge.consumer) for edge in flow(records)] == [
        ("relu", "Distributed.all_gather_into_tensor.0.forward"),
        ("recv", "Torch.tanh.0.forward"),
        ("all_gather_into_tensor", "Torch.tanh.1.forward"),
        ("relu", "Torch.tanh.2.forward"),
    ]


def test_what_is_recomputed_feeds_what_follows_it(flow: Callable[..., list[Edge]]) -> None:
    again = {"is_recompute": True}
    records = {
        "Torch.relu.0.forward": call(1, returns=2),
        "Torch.tanh.0.forward": call(2, returns=3),
        "Torch.relu.1.forward": call(1, returns=2) | again,
        "Torch.tanh.1.forward": call(2, returns=3) | again,
    }
    found = flow(records)
    assert [edge.producer for edge in found] == ["Torch.relu.0.forward", "Torch.relu.1.forward"]
    assert all(edge.is_certain for edge in found)


def test_a_record_without_numbers_or_form_has_no_edges(flow: Callable[..., list[Edge]]) -> None:
    unknown = made(1, Max=None, Min=None, Mean=None, Norm=None)
    records = {
        "Torch.empty.0.forward": forward(unknown),
        "Torch.relu.0.forward": forward(unknown),
        "Torch.tanh.0.forward": {"input_args": 7},
        "no.name": forward(made(1)),
    }
    assert flow(records) == []


def test_parents_that_form_a_circle_are_no_trouble(flow: Callable[..., list[Edge]]) -> None:
    records = {"Torch.relu.0.forward": call(1, returns=2), "Torch.tanh.0.forward": call(2, returns=3)}
    parents = {"Torch.relu.0.forward": "Module.a.A.forward.0", "Module.a.A.forward.0": "Module.a.A.forward.0"}
    assert len(flow(records, parents)) == 1
