"""Where tensors lay in memory, as a recording says it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from msprobe_hooks.dump.memory_layouts import LAYOUT_KEYS
from msprobe_hooks.dump.reader import read_dump
from msprobe_hooks.record import record

Records = Callable[[Path], dict[str, Any]]


def memory_of(entry: dict[str, Any]) -> dict[str, Any]:
    return {key: entry[key] for key in LAYOUT_KEYS if key in entry}


@pytest.fixture
def recorded(tmp_path: Path, records: Records) -> Callable[..., dict[str, Any]]:
    def run(program: Callable[[], Any], **options: Any) -> dict[str, Any]:
        with record(tmp_path, **options):
            program()
        return records(tmp_path)

    return run


def first(of: dict[str, Any], name: str, key: str = "input_args") -> dict[str, Any]:
    return memory_of(of[name][key][0])


def test_a_contiguous_tensor_says_nothing_of_its_memory(recorded: Any) -> None:
    assert first(recorded(lambda: torch.relu(torch.ones(3, 4))), "Torch.relu.0.forward") == {}


def test_a_part_says_where_it_begins_in_which_storage(recorded: Any) -> None:
    x = torch.ones(6, 4)
    assert first(recorded(lambda: torch.relu(x[2:4])), "Torch.relu.0.forward") == {
        "storage_offset": 8,
        "storage_size": 24,
    }


def test_a_column_says_its_strides_as_well(recorded: Any) -> None:
    x = torch.ones(6, 4)
    assert first(recorded(lambda: torch.relu(x[:, 1])), "Torch.relu.0.forward") == {
        "stride": [4],
        "storage_offset": 1,
        "storage_size": 24,
    }


def test_a_transposed_tensor_fills_its_storage(recorded: Any) -> None:
    x = torch.ones(6, 4)
    assert first(recorded(lambda: torch.relu(x.t())), "Torch.relu.0.forward") == {"stride": [1, 4]}


def test_an_expanded_tensor_has_no_larger_storage(recorded: Any) -> None:
    x = torch.ones(1, 4)
    assert first(recorded(lambda: torch.relu(x.expand(3, 4))), "Torch.relu.0.forward") == {"stride": [0, 1]}


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize("options", [{}, {"summary_mode": "md5"}, {"async_dump": True}], ids=str)
def test_arguments_that_share_memory_have_the_number_of_their_storage(
    recorded: Any, task: str, options: dict[str, Any]
) -> None:
    x, y = torch.randn(6, 4), torch.randn(2, 4)
    if task == "tensor" and "summary_mode" in options:
        options = {"tensor_files": "safetensors"}
    of = recorded(lambda: torch.cat([x[:2], y, x[4:], y]), task=task, **options)
    entries = of["Torch.cat.0.forward"]["input_args"][0]
    assert [entry.get("storage") for entry in entries] == [0, 1, 0, 1]
    if task == "statistics":
        assert all(entry["Max"] is not None and entry["Norm"] is not None for entry in entries)


def test_where_nothing_is_shared_there_is_no_number(recorded: Any) -> None:
    of = recorded(lambda: torch.add(torch.ones(2), torch.ones(2)))
    assert all("storage" not in entry for entry in of["Torch.add.0.forward"]["input_args"])


def test_the_number_belongs_to_one_record(recorded: Any) -> None:
    x = torch.randn(4)

    def program() -> None:
        torch.add(x, x)
        torch.relu(x)

    of = recorded(program)
    assert [entry["storage"] for entry in of["Torch.add.0.forward"]["input_args"]] == [0, 0]
    assert first(of, "Torch.relu.0.forward") == {}


def test_an_out_argument_shares_the_memory_of_an_input(recorded: Any) -> None:
    x = torch.randn(4)
    call = recorded(lambda: torch.add(x, torch.ones(4), out=x))["Torch.add.0.forward"]
    assert [memory_of(entry) for entry in call["input_args"]] == [{"storage": 0}, {}]
    assert memory_of(call["input_kwargs"]["out"]) == {"storage": 0}


def test_lazy_bits_are_recorded(recorded: Any) -> None:
    x = torch.randn(3, 4, dtype=torch.complex64)
    of = recorded(lambda: (torch.exp(x.mH), torch.exp(x.conj().imag), torch.exp(x.conj().resolve_conj())))
    assert first(of, "Torch.exp.0.forward") == {"stride": [1, 4], "is_conj": True}
    lies = {"stride": [8, 2], "storage_offset": 1, "storage_size": 24}
    assert first(of, "Torch.exp.1.forward") == {**lies, "is_neg": True}
    assert first(of, "Torch.exp.2.forward") == {}


def test_arriving_gradients_have_their_lazy_bits_recorded(recorded: Any) -> None:
    x = torch.randn(3, dtype=torch.complex64, requires_grad=True)
    of = recorded(lambda: torch.exp(x).conj().backward(torch.randn(3, dtype=torch.complex64)))
    assert first(of, "Torch.exp.0.backward", "input") == {"is_conj": True}


@pytest.mark.parametrize("is_coalesced", [True, False])
def test_a_sparse_tensor_says_how_many_elements_it_has_and_if_it_is_coalesced(
    recorded: Any, *, is_coalesced: bool
) -> None:
    x = torch.sparse_coo_tensor(torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.ones(3), (2, 3), check_invariants=False)
    x = x.coalesce() if is_coalesced else x
    (entry,) = recorded(lambda: torch.neg(x))["Torch.neg.0.forward"]["input_args"]
    assert (entry["nnz"], entry["is_coalesced"]) == ((2, True) if is_coalesced else (3, False))


def test_arriving_gradients_say_how_they_lay(recorded: Any) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    of = recorded(lambda: torch.tanh(x).t().sum().backward())
    assert first(of, "Tensor.t.0.backward", "input") == {"stride": [0, 0]}


def test_a_module_call_says_it_of_inputs_and_parameters(recorded: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 3))
    flat = torch.randn(15)
    model[0].weight.data, model[0].bias.data = flat[:12].view(3, 4), flat[12:]
    x = torch.randn(4, 2).t()
    of = recorded(lambda: model(x), level="L0", model=model)
    (call,) = of.values() if len(of) == 1 else [of["Module.0.Linear.forward.0"]]
    assert first({"call": call}, "call") == {"stride": [1, 2]}
    assert memory_of(call["parameters"]["bias"]) == {"storage_offset": 12, "storage_size": 15, "storage": 0}


def test_the_state_of_an_optimizer_says_how_it_lay(recorded: Any) -> None:
    weight = nn.Parameter(torch.randn(4, 3).t())
    weight.grad = torch.randn(4, 3).t()
    optimizer = torch.optim.SGD([weight], momentum=0.9, foreach=False)
    optimizer.step()
    of = recorded(optimizer.step)
    assert first(of, "Tensor.mul_.0.forward") == {"stride": [1, 3]}


def test_function_transforms_are_recorded_as_before(recorded: Any) -> None:
    of = recorded(lambda: torch.vmap(torch.tanh)(torch.ones(3, 4)))
    assert any("tanh" in name for name in of)


def test_no_tensor_of_a_transform_stops_the_recording(tmp_path: Path) -> None:
    with record(tmp_path) as session:
        torch.func.grad(lambda x: torch.tanh(x).sum())(torch.ones(4))
        F.relu(torch.ones(2).to_sparse().to_dense())
    assert not session.summary.errors


def test_a_dump_says_that_it_has_layouts(tmp_path: Path) -> None:
    with record(tmp_path):
        torch.relu(torch.ones(2))
    assert read_dump(tmp_path / "step0" / "rank" / "dump.json").has_layouts
