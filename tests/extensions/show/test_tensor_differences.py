"""Where two tensors differ, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from pytest_msprobe.extensions.show.tensor_differences import Differences, Tolerance
from tests.support.dumps.dump_files import forward, tensor, write_dump

Show = Callable[..., tuple[int, str]]
Shown = Callable[..., Any]
_FLOATS = st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.0, 1e30, float("nan"), float("inf"), -float("inf")])


@given(
    a=arrays.arrays(np.float32, (5, 7), elements=_FLOATS),
    b=arrays.arrays(np.float32, (5, 7), elements=_FLOATS),
    count=st.integers(0, 12),
)
def test_counts_and_elements_are_those_of_a_loop_over_all(
    a: NDArray[np.float32], b: NDArray[np.float32], count: int
) -> None:
    tolerance = Tolerance(0.25, 0.5)
    found = Differences(count, tolerance)
    found.over(torch.from_numpy(a), torch.from_numpy(b))
    first, largest = found.elements(torch.from_numpy(a), torch.from_numpy(b))
    pairs = [(index, float(a[index]), float(b[index])) for index in np.ndindex(a.shape)]
    differing = [(index, x, y) for index, x, y in pairs if not (x == y or (x != x and y != y))]
    errors = {index: abs(x - y) if abs(x - y) == abs(x - y) else float("inf") for index, x, y in differing}
    assert found.equal == a.size - len(differing)
    assert [one.index for one in first] == [index for index, _, _ in differing][:count]
    assert [one.index for one in largest] == sorted(errors, key=lambda index: (-errors[index], index))[:count]
    assert [one.error for one in largest] == [errors[one.index] for one in largest]
    close = np.isclose(a.astype(np.float64), b.astype(np.float64), rtol=0.25, atol=0.5, equal_nan=True)
    # An infinite limit allows any finite error to numpy's mind too, but no disagreement of NaN and inf.
    assert found.beyond == sum(not close[index] for index in errors)


def test_integers_of_64_bits_differ_by_what_they_differ(tmp_path: Path, shown: Shown) -> None:
    np.save(tmp_path / "a.npy", np.array([2**62, 2**63 - 1, 7]))
    np.save(tmp_path / "b.npy", np.array([2**62 + 1, -(2**63), 7]))
    (pair,) = shown(tmp_path / "a.npy", tmp_path / "b.npy")["pairs"]
    assert pair["outcome"] == "fail"
    assert [one["error"] for one in pair["difference"]["first"]] == [1.0, float(2**64 - 1)]


def test_a_dropped_last_column_is_seen_in_the_map(tmp_path: Path, show: Show) -> None:
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    y = x.copy()
    y[:, -1] = 0
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    status, text = show(tmp_path / "y.npy", tmp_path / "x.npy")
    lines = [line.strip().strip("|") for line in text.splitlines() if line.strip().startswith("|")]
    assert status == 1
    assert {line[:-1].strip(".") for line in lines} == {""}
    assert all(line[-1].isdigit() for line in lines)
    assert "equal: 4032 of 4096 elements" in text


def test_cosine_and_greatest_error_are_numpys(tmp_path: Path, shown: Shown) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 1000))
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    (pair,) = shown(tmp_path / "x.npy", tmp_path / "y.npy")["pairs"]
    metrics = pair["difference"]["metrics"]
    assert metrics["cosine_sim"] == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y))
    assert metrics["max_abs_err"] == np.abs(x - y).max()
    assert pair["difference"]["largest"][0]["index"] == [int(np.abs(x - y).argmax())]


def test_what_is_beyond_a_tolerance_is_counted_as_assert_close_does(tmp_path: Path, shown: Shown) -> None:
    x = torch.linspace(1, 2, 100)
    y = x * (1 + torch.linspace(0, 4e-6, 100))
    torch.save(x, tmp_path / "x.pt")
    torch.save(y, tmp_path / "y.pt")
    with pytest.raises(AssertionError) as caught:
        torch.testing.assert_close(x, y, rtol=1.3e-6, atol=0)
    (pair,) = shown(tmp_path / "x.pt", tmp_path / "y.pt", "--rtol", "1.3e-6", "--atol", "0")["pairs"]
    assert pair["outcome"] == "pass"
    assert f"Mismatched elements: {pair['difference']['beyond']} / 100" in str(caught.value)


def test_a_standard_of_checks_can_judge(tmp_path: Path, show: Show) -> None:
    np.save(tmp_path / "x.npy", np.float32([1, 2]))
    np.save(tmp_path / "y.npy", np.float32([1, np.nextafter(np.float32(2), np.float32(3))]))
    assert show(tmp_path / "x.npy", tmp_path / "y.npy")[0] == 0
    status, text = show(tmp_path / "x.npy", tmp_path / "y.npy", "--standard", "binary_consistency")
    assert status == 1
    assert "judged by standard binary_consistency" in text


def test_checkpoints_are_paired_by_name(tmp_path: Path, shown: Shown) -> None:
    torch.save({"a": torch.ones(2), "b": torch.ones(3), "old": torch.ones(1)}, tmp_path / "x.pt")
    torch.save({"b": torch.ones(4), "a": torch.ones(2), "new": torch.ones(1)}, tmp_path / "y.pt")
    pairs = {
        pair["name"]: (pair["outcome"], pair["reason"]) for pair in shown(tmp_path / "x.pt", tmp_path / "y.pt")["pairs"]
    }
    assert pairs == {
        "a": ("pass", ""),
        "b": ("fail", "shape [3] in place of [4]"),
        "old": ("fail", "only the first has it"),
        "new": ("fail", "only the second has it"),
    }


def test_records_without_tensors_are_held_against_each_other_by_statistics(tmp_path: Path, shown: Shown) -> None:
    one = write_dump(tmp_path / "one", {"Torch.exp.0.forward": forward(tensor(2, Mean=0.5, Norm=1.0))})
    other = write_dump(tmp_path / "other", {"Torch.exp.0.forward": forward(tensor(2, Mean=0.5, Norm=2.0))})
    pairs = shown(f"{one}::Torch.exp.0.forward", f"{other}::Torch.exp.0.forward")["pairs"]
    assert [(pair["name"], pair["outcome"]) for pair in pairs] == [("input.0", "fail"), ("output.0", "fail")]


def test_sparse_tensors_are_judged_whole(tmp_path: Path, shown: Shown) -> None:
    dense = torch.eye(3)
    torch.save(dense.to_sparse(), tmp_path / "x.pt")
    torch.save((dense * 2).to_sparse(), tmp_path / "y.pt")
    assert shown(tmp_path / "x.pt", tmp_path / "x.pt")["pairs"][0]["outcome"] == "pass"
    assert shown(tmp_path / "x.pt", tmp_path / "y.pt")["pairs"][0]["outcome"] == "fail"


def test_memory_does_not_grow_with_the_tensors(tmp_path: Path) -> None:
    """Parts are gone over one after the other: what is allocated for 4 Mi elements stays below a quarter of them."""
    import tracemalloc

    x = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float32, shape=(2048, 2048))
    x[:] = 1
    y = torch.from_numpy(x).clone()
    y[:, -1] = 2
    tracemalloc.start()
    found = Differences(10, Tolerance(0.0, 0.0))
    found.over(torch.from_numpy(x), y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.equal == 2048 * 2047
    assert peak < x.nbytes / 8


def test_what_nan_hides_is_measured_over_the_finite_elements_of_8_bits(tmp_path: Path, show: Show) -> None:
    golden = torch.tensor([1.0, 2.0, 4.0]).to(torch.float8_e4m3fn)
    torch.save(golden, tmp_path / "golden.pt")
    torch.save(torch.tensor([float("nan"), 3.0, 4.0]).to(torch.float8_e4m3fn), tmp_path / "target.pt")
    _, text = show(tmp_path / "target.pt", tmp_path / "golden.pt")
    assert "inf; finite elements: 1" in text


def test_what_nan_hides_is_measured_over_the_finite_elements(tmp_path: Path, show: Show) -> None:
    x = np.array([1.0, 2.0, 4.0], np.float32)
    np.save(tmp_path / "golden.npy", x)
    np.save(tmp_path / "target.npy", np.array([np.nan, 2.5, 4.0], np.float32))
    _, text = show(tmp_path / "target.npy", tmp_path / "golden.npy")
    assert "inf; finite elements: 0.5" in text
    assert "equal: 1 of 3 elements" in text
