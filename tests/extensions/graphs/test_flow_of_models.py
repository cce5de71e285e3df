"""The data flow of recorded models, against the one that torch.fx finds by tracing them without values."""

from __future__ import annotations

import operator
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn

from msprobe_hooks import record
from msprobe_hooks.dump.call_context import Surroundings
from msprobe_hooks.dump.names import backward_of, parse_api_name
from msprobe_hooks.dump.reader import Dump, read_dump
from pytest_msprobe.extensions.graphs.data_flow import Edge, find_flow

Call = str
Flow = set[tuple[Call, Call]]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.into(x).split(8, 2)
        weights = F.softmax(query @ key.transpose(1, 2), -1)
        return self.out(weights @ value)


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.drop, self.head = nn.LayerNorm(8), Attention(), nn.Dropout(0.4), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(x)
        x = x + self.drop(self.attention(self.norm(x)))
        x = x + F.gelu(x)
        return self.head(x)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.norm, self.relu, self.around = nn.GroupNorm(2, 4), nn.ReLU(inplace=True), nn.Conv2d(2, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.relu(self.norm(self.first(x))))
        y = y.add_(self.around(x))
        return torch.flatten(F.max_pool2d(self.relu(y), 2), 1)


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Inner(), Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(torch.tanh(x)))


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.around = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.two(torch.relu(self.one(x))) + self.around(x))


MODELS = [
    pytest.param(Transformer, (2, 4, 8), id="transformer"),
    pytest.param(Residual, (2, 2, 6, 6), id="residual"),
    pytest.param(Blocks, (3, 4), id="blocks"),
]


def traced(model: nn.Module, calls: list[Call]) -> Flow:
    """Return which call gave a value to which, by tracing alone; ``calls`` are the recorded ones in order."""
    names: dict[fx.Node, Call] = {}
    waiting = iter(calls)
    found: Flow = set()
    for node in fx.symbolic_trace(model).graph.nodes:
        if not node.op.startswith("call_"):
            continue
        sources = [names[source] for source in node.all_input_nodes if source in names]
        if node.target is operator.getitem:
            names[node] = sources[0]
            continue
        names[node] = next(waiting)
        assert comparable(parse_api_name(names[node]).api) in comparable(called(model, node))
        found |= {(source, names[node]) for source in sources}
    assert not list(waiting)
    return found


def called(model: nn.Module, node: fx.Node) -> str:
    if node.op == "call_module":
        return type(model.get_submodule(str(node.target))).__name__
    return node.target if isinstance(node.target, str) else node.target.__name__


def comparable(name: str) -> str:
    return name.replace("_", "").lower()


def recorded(model: nn.Module, shape: tuple[int, ...], folder: Path, level: str, **options: str) -> Dump:
    torch.manual_seed(0)
    x = torch.randn(shape)
    with record(folder, level, model=model, **options):
        model(x).square().sum().backward()
    return read_dump(folder / "step0/rank/dump.json")


def flow(dump: Dump) -> list[Edge]:
    return find_flow(dump, Surroundings(dump.path.parent).parents.entries.get)


def forward_calls(dump: Dump) -> list[Call]:
    """Return the calls of the model, without those that make a loss of what it returns."""
    names = [name for name in dump.api_names if name.endswith(".forward")]
    return names[: names.index("Tensor.square.0.forward")]


@pytest.mark.parametrize(("model", "shape"), MODELS)
@pytest.mark.parametrize(
    "options", [{}, {"summary_mode": "md5"}, {"task": "tensor"}], ids=["statistics", "md5", "tensor"]
)
def test_a_recorded_model_shows_the_flow_that_tracing_finds(
    model: type[nn.Module], shape: tuple[int, ...], options: dict[str, str], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    made = model()
    dump = recorded(made, shape, tmp_path, "mix", **options)
    calls = forward_calls(dump)
    found = {(edge.producer, edge.consumer) for edge in flow(dump)}
    assert {edge for edge in found if edge[0] in calls and edge[1] in calls} == traced(made, calls)


@pytest.mark.parametrize(("model", "shape"), MODELS)
def test_gradients_flow_the_other_way_round(model: type[nn.Module], shape: tuple[int, ...], tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = model()
    dump = recorded(made, shape, tmp_path, "mix")
    calls = forward_calls(dump)
    backward = {backward_of(name) for name in calls} & dump.records.keys()
    found = {(edge.producer, edge.consumer) for edge in flow(dump)}
    expected = {(backward_of(after), backward_of(before)) for before, after in traced(made, calls)}
    assert {edge for edge in found if backward.issuperset(edge)} == {
        edge for edge in expected if backward.issuperset(edge)
    }


def test_modules_alone_show_how_they_follow_each_other(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)), nn.Sigmoid())
    found = [(edge.producer, edge.consumer) for edge in flow(recorded(model, (2, 3), tmp_path, "L0"))]
    names = ["Module.0.Linear", "Module.1.0.Tanh", "Module.1.1.Linear", "Module.2.Sigmoid"]
    followed = list(pairwise(names))
    assert [edge for edge in found if "forward" in edge[0]] == [
        (f"{before}.forward.0", f"{after}.forward.0") for before, after in followed
    ]
    assert {(f"{after}.backward.0", f"{before}.backward.0") for before, after in followed} <= set(found)
