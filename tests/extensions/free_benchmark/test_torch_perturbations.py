"""The laws of the free benchmark's perturbations, by numpy and by Hypothesis."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from msprobe_hooks.extensions.free_benchmark.argument_changes import NotPerturbedError
from msprobe_hooks.extensions.free_benchmark.config import PERTURBATIONS
from msprobe_hooks.extensions.free_benchmark.torch_perturbations import perturb

NOISE = {np.float16: 1e-6, np.float32: 1e-8, np.float64: 1e-16}
BITS = {np.float16: np.int16, np.float32: np.int32, np.float64: np.int64}


class Pair(NamedTuple):
    left: Any
    right: Any


@st.composite
def tensors(draw: st.DrawFn, least: int = 1) -> np.ndarray[Any, Any]:
    dtype = draw(st.sampled_from(list(NOISE)))
    shape = draw(arrays.array_shapes(min_dims=1, max_dims=3, min_side=least, max_side=4))
    elements = arrays.from_dtype(np.dtype(dtype), allow_nan=False, allow_infinity=False)
    return draw(arrays.arrays(dtype, shape, elements=elements))


def perturbed(name: str, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Perturb one tensor and see that it is left as it was; return the values themselves where it cannot be."""
    tensor = torch.from_numpy(values.copy())
    try:
        (changed,), _ = perturb(name, (tensor,), {})
    except NotPerturbedError:
        return values
    np.testing.assert_array_equal(tensor.numpy(), values)
    return changed.numpy()


@given(tensors())
def test_noise_moves_what_is_not_small_by_the_noise_and_nothing_else(values: np.ndarray[Any, Any]) -> None:
    noise = NOISE[values.dtype.type]
    with np.errstate(over="ignore"):
        moved = (values.astype(np.float64) + noise).astype(values.dtype)
    limit = np.asarray(noise**0.5, dtype=values.dtype)
    expected = values if np.abs(values).max() < noise else np.where(np.abs(values) > limit, moved, values)
    found = perturbed("add_noise", values)
    # Two ways to round a sum: one step apart at most.
    np.testing.assert_array_max_ulp(found, expected, maxulp=1)
    small = np.abs(values.astype(np.float64)) < 0.99 * noise**0.5
    np.testing.assert_array_equal(found[small], values[small])


@given(tensors())
def test_bit_noise_flips_the_last_bit_of_normal_numbers_and_no_other(values: np.ndarray[Any, Any]) -> None:
    bits = BITS[values.dtype.type]
    flips = (np.abs(values) > np.finfo(values.dtype).smallest_normal) & (
        # In the values' own precision 1e-8 would be equal to the noise, which it is below.
        float(np.abs(values).max()) >= NOISE[values.dtype.type]
    )
    np.testing.assert_array_equal(perturbed("bit_noise", values).view(bits) ^ values.view(bits), flips.astype(bits))


@given(tensors())
def test_a_bit_flipped_twice_is_as_it_was(values: np.ndarray[Any, Any]) -> None:
    once = perturbed("bit_noise", values)
    # What became smaller than the noise is not perturbed again.
    assume(np.abs(once).max() > 1.01 * NOISE[values.dtype.type])
    # The smallest normal number is left alone, and the next one is flipped to it.
    far = np.abs(values) > np.nextafter(np.finfo(values.dtype).smallest_normal, np.inf, dtype=values.dtype)
    np.testing.assert_array_equal(perturbed("bit_noise", once)[far], values[far])


@given(tensors(least=2))
def test_swapping_values_twice_changes_nothing_and_once_keeps_all_others(values: np.ndarray[Any, Any]) -> None:
    once = perturbed("change_value", values)
    first, last = ((0,), (-1,)) if values.ndim == 1 else ((0, 0), (-1, -1))
    np.testing.assert_array_equal(once[first], values[last])
    np.testing.assert_array_equal(once[last], values[first])
    assert sorted(once.flatten()) == sorted(values.flatten())
    np.testing.assert_array_equal(perturbed("change_value", once), values)


@given(tensors())
def test_no_change_changes_no_bit(values: np.ndarray[Any, Any]) -> None:
    assert perturbed("no_change", values).tobytes() == values.tobytes()


def test_improving_precision_widens_every_narrow_tensor_wherever_it_stands() -> None:
    half, narrow, wide = torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.bfloat16), torch.ones(2).double()
    (first, (second, third)), kwargs = perturb(
        "improve_precision", (half, [narrow, 3]), {"weight": narrow, "bias": wide}
    )
    assert [first.dtype, second.dtype, kwargs["weight"].dtype] == [torch.float32] * 3
    assert third == 3
    assert kwargs["bias"] is wide


def test_on_the_cpu_narrow_tensors_are_widened_and_others_keep_their_dtype() -> None:
    (x, index), _ = perturb("to_cpu", (torch.ones(2, dtype=torch.bfloat16, requires_grad=True), torch.arange(2)), {})
    assert (x.dtype, x.requires_grad, index.dtype) == (torch.float32, False, torch.int64)


def test_only_the_first_float_tensor_of_the_first_argument_that_holds_any_is_perturbed() -> None:
    index, x, y = torch.arange(3), torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0])
    (kept, pair, last), kwargs = perturb("bit_noise", (index, Pair(index, {"x": x, "y": y}), y), {"z": y})
    assert kept is index
    assert isinstance(pair, Pair)
    assert not torch.equal(pair.right["x"], x)
    assert pair.right["y"] is y
    assert last is y
    assert kwargs["z"] is y


@pytest.mark.parametrize(
    ("name", "args", "reason"),
    [
        ("add_noise", (torch.arange(3),), "no float tensor"),
        ("add_noise", ([torch.arange(3)], torch.ones(3)), "no float tensor"),
        ("no_change", (), "no float tensor"),
        ("add_noise", (torch.ones(0),), "empty"),
        ("bit_noise", (torch.full((3,), 1e-9),), "smaller than the noise"),
        ("bit_noise", (torch.ones(3).to(torch.float8_e4m3fn),), "no noise is known for torch.float8_e4m3fn"),
        ("change_value", (torch.ones(1),), "too few elements"),
        ("change_value", (torch.ones(()),), "too few elements"),
        ("change_value", (torch.ones(1, 1, 5),), "too few elements"),
        ("change_value", (torch.ones(2, 2, 0),), "too few elements"),
        ("add_noise", (torch.eye(4).to_sparse(),), "sparse or nested"),
        ("bit_noise", (torch.eye(4).to_sparse(),), "sparse or nested"),
        ("change_value", (torch.eye(4).to_sparse(),), "sparse or nested"),
        ("improve_precision", (torch.ones(3),), "no float16 or bfloat16"),
        ("to_cpu", (3,), "no tensor"),
    ],
)
def test_inputs_that_cannot_be_perturbed_are_refused_with_the_reason(name: str, args: Any, reason: str) -> None:
    with pytest.raises(NotPerturbedError, match=reason):
        perturb(name, args, {})


@pytest.mark.filterwarnings("ignore")  # that nested and compressed tensors are a prototype
def test_tensors_whose_elements_have_no_places_of_their_own_are_not_perturbed() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    for tensor in (nested, torch.eye(4).to_sparse_csr()):
        with pytest.raises(NotPerturbedError, match="sparse or nested"):
            perturb("bit_noise", ([tensor],), {})


def test_a_bit_is_flipped_of_what_a_lazily_negated_tensor_holds() -> None:
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    (changed,), _ = perturb("bit_noise", (x,), {})
    (expected,), _ = perturb("bit_noise", (torch.tensor([-2.0, 4.0]),), {})
    assert torch.equal(changed, expected)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_every_perturbation_has_a_function_behind_its_name(name: str) -> None:
    (changed,), _ = perturb(name, (torch.tensor([1.0, 2.0], dtype=torch.bfloat16),), {})
    assert changed.shape == (2,)
