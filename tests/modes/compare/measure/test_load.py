"""Recorded tensors of any layout are compared by what they store."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from msprobe_hooks.dump.schema import TensorElement
from msprobe_hooks.errors import DumpError
from pytest_msprobe.engine.values.tensor_files import load_tensor
from pytest_msprobe.modes.compare.measure.load import plain_pair
from pytest_msprobe.modes.compare.measure.tensor_pairs import measure_tensors

DENSE = torch.tensor([[0.0, 2.0, 0.0, 4.0], [0.0, 0.0, 5.0, 0.0]])
LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def sparse(layout: torch.layout, rows: torch.Tensor = DENSE) -> torch.Tensor:
    return rows.to_sparse(layout=layout)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", [*LAYOUTS, torch.strided])
@pytest.mark.parametrize("golden", [*LAYOUTS, torch.strided])
def test_layouts_of_one_content_are_equal_and_a_wrong_value_is_at_its_place(
    target: torch.layout, golden: torch.layout
) -> None:
    wrong = DENSE.index_put((torch.tensor(1), torch.tensor(1)), torch.tensor(7.0))
    make = {layout: lambda rows, layout=layout: rows.to_sparse(layout=layout) for layout in LAYOUTS}
    make[torch.strided] = lambda rows: rows
    equal = plain_pair(make[target](DENSE), make[golden](DENSE))
    assert measure_tensors(equal.target, equal.golden).metrics["max_abs_err"] == 0
    pair = plain_pair(make[target](wrong), make[golden](DENSE))
    measured = measure_tensors(pair.target, pair.golden)
    assert measured.metrics["max_abs_err"] == 7
    assert pair.coordinates(measured.worst) == (1, 1)


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_are_compared_by_the_numbers_that_they_stand_for() -> None:
    pair = plain_pair(torch.quantize_per_tensor(DENSE, 0.5, 0, torch.quint8), DENSE)
    assert torch.equal(pair.target, pair.golden)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.filterwarnings("ignore")
def test_a_recorded_sparse_tensor_is_read_back(layout: torch.layout, tmp_path: Path) -> None:
    torch.save(sparse(layout), tmp_path / "x.pt")
    element = TensorElement(type="torch.Tensor", dtype="torch.float32", shape=(2, 4), data_name="x.pt")
    assert torch.equal(load_tensor(element, tmp_path).to_dense(), DENSE)


@pytest.mark.filterwarnings("ignore")
def test_a_sparse_tensor_whose_indices_lie_outside_of_it_is_no_readable_file(tmp_path: Path) -> None:
    outside = torch.tensor([[0, 900], [1, 2]])
    torch.save(torch.sparse_coo_tensor(outside, torch.ones(2), (2, 4), check_invariants=False), tmp_path / "x.pt")
    element = TensorElement(type="torch.Tensor", dtype="torch.float32", shape=(2, 4), data_name="x.pt")
    with pytest.raises(DumpError, match="not a readable tensor file"):
        load_tensor(element, tmp_path)
