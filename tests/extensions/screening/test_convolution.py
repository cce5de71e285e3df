"""Convolutions as products of patches, held to torch, and what of them is never cleared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import Policy
from pytest_msprobe.engine.replay.calls.arguments import Arguments
from pytest_msprobe.extensions.screening import convolution
from pytest_msprobe.extensions.screening.config import examine, screening
from pytest_msprobe.extensions.screening.convolution import Convolution
from pytest_msprobe.extensions.screening.tile_sums import Product

_BY = Policy.load("default")
SEEDS = st.integers(0, 2**32)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def convolved(operation: str, tensors: list[torch.Tensor], options: dict[str, Any]) -> torch.Tensor:
    result: torch.Tensor = getattr(torch.nn.functional, operation)(*tensors, **options)
    return result


def structure(operation: str, tensors: list[torch.Tensor], options: dict[str, Any]) -> Convolution | None:
    found = Arguments(tuple(tensor.detach() for tensor in tensors), options, frozenset())
    return convolution.convolution_of(operation, found)


def whole(matrix: Any) -> torch.Tensor:
    found: torch.Tensor = matrix[torch.arange(len(matrix))]
    return found


def assert_products(products: list[Product], result: torch.Tensor) -> None:
    assert sum(each.result.numel() for each in products) == result.numel()
    for each in products:
        expected = each.left.double() @ whole(each.right).double() + each.added_to(slice(None), slice(None))
        torch.testing.assert_close(each.result.double(), expected)


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution, "_LEAST_CHANNELS", dict.fromkeys(DTYPES, 1))
    monkeypatch.setattr(convolution, "_LEAST_WINDOWS", 1)


@pytest.mark.usefixtures("any_size")
def test_result_and_gradients_are_those_of_products_whatever_the_windows() -> None:
    # Within the fixture, which Hypothesis would not renew.
    @settings(max_examples=80)
    @given(st.data(), st.integers(1, 3), st.booleans(), SEEDS)
    def law(data: st.DataObject, dimensions: int, transposed: bool, seed: int) -> None:
        def each(low: int, high: int) -> list[int]:
            return data.draw(st.lists(st.integers(low, high), min_size=dimensions, max_size=dimensions))

        torch.manual_seed(seed)
        sides, kernel, groups = each(1, 6), each(1, 4), data.draw(st.integers(1, 3))
        options: dict[str, Any] = {
            "stride": each(1, 4),
            "padding": each(0, 3),
            "dilation": each(1, 3),
            "groups": groups,
        }
        features, image = groups * data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
        if transposed:
            options["output_padding"] = each(0, 2)
        operation = f"conv_transpose{dimensions}d" if transposed else f"conv{dimensions}d"
        channels = (features, image * groups) if transposed else (image * groups, features)
        shapes = [(2, channels[0], *sides), (features, image, *kernel), (channels[1],)]
        tensors = [torch.randn(shape).requires_grad_() for shape in shapes]
        found = structure(operation, tensors, options)
        try:
            result = convolved(operation, [tensor.double() for tensor in tensors], options)
        except RuntimeError:
            assert found is None
            return
        if not result.numel():
            assert found is None
            return
        assert found is not None
        assert found.shape == result.shape
        arriving = torch.randn(result.shape)
        gradients = torch.autograd.grad(result, tensors, arriving.double())
        assert_products(found.forward(result.float()), result)
        assert_products(found.backward("args.0", gradients[0], arriving), gradients[0])
        assert_products(found.backward("args.1", gradients[1], arriving), gradients[1])
        torch.testing.assert_close(found.summed(arriving).double().sum(0), gradients[2].double())

    law()


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("padding", ["same", "valid"])
def test_padding_may_be_said_by_a_word(kernel: int, padding: str) -> None:
    tensors, options = [torch.randn(2, 3, 9), torch.randn(4, 3, kernel)], {"padding": padding, "dilation": 2}
    found = structure("conv1d", tensors, options)
    assert found is not None
    result = convolved("conv1d", [tensor.double() for tensor in tensors], options)
    assert_products(found.forward(result), result)


WRONG: dict[str, tuple[list[tuple[int, ...]], dict[str, Any]]] = {
    "no batch": ([(3, 9), (4, 3, 2)], {}),
    "channels that do not fit": ([(2, 5, 9), (4, 3, 2)], {}),
    "groups that do not divide": ([(2, 9, 9), (4, 3, 2)], {"groups": 3}),
    "a bias of another length": ([(2, 3, 9), (4, 3, 2), (3,)], {}),
    "a bias that is broadcast": ([(2, 3, 9), (4, 3, 2), (1,)], {}),
    "a kernel beyond the padding": ([(2, 3, 9), (4, 3, 12)], {"padding": 1}),
    "a step of zero": ([(2, 3, 9), (4, 3, 2)], {"stride": 0}),
    "a padding below zero": ([(2, 3, 9), (4, 3, 2)], {"padding": -1}),
    "a step for each of two": ([(2, 3, 9), (4, 3, 2)], {"stride": (1, 2)}),
    "a word that is none": ([(2, 3, 9), (4, 3, 2)], {"padding": "reflect"}),
    "the same size in steps": ([(2, 3, 9), (4, 3, 2)], {"padding": "same", "stride": 2}),
    "two dimensions": ([(2, 3, 9, 9), (4, 3, 2, 2)], {}),
    "a step that is a tensor": ([(2, 3, 9), (4, 3, 2)], {"stride": torch.tensor(2)}),
    "steps that are a tensor": ([(2, 3, 9), (4, 3, 2)], {"padding": "same", "stride": torch.tensor([1, 2])}),
    "another parameter": ([(2, 3, 9), (4, 3, 2)], {"padding_mode": "zeros"}),
    "no channel": ([(2, 0, 9), (4, 0, 2)], {}),
    "no batch element": ([(0, 3, 9), (4, 3, 2)], {}),
}


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_or_is_not_known_is_none(what: str) -> None:
    shapes, options = WRONG[what]
    assert structure("conv1d", [torch.randn(shape) for shape in shapes], options) is None


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize(
    "values",
    [torch.randn(1, 3, 9).expand(2, 3, 9), torch.ones(2, 3, 9, dtype=torch.int64), torch.randn(2, 3, 9).double()],
    ids=["expanded", "integers", "float64"],
)
def test_expanded_tensors_and_other_dtypes_are_none(values: torch.Tensor) -> None:
    assert structure("conv1d", [values, torch.randn(4, 3, 2).to(values.dtype)], {}) is None


@pytest.mark.parametrize(
    ("values", "weight", "dtype"),
    [
        ((2, 1, 40, 40), (256, 1, 3, 3), torch.float32),
        ((2, 256, 40, 40), (1, 256, 3, 3), torch.float32),
        ((2, 64, 40, 40), (256, 64, 3, 3), torch.float32),
        ((2, 128, 40, 40), (256, 128, 3, 3), torch.bfloat16),
        ((1, 256, 9, 9), (256, 256, 3, 3), torch.float32),
    ],
)
def test_few_channels_or_windows_are_none(values: tuple[int, ...], weight: tuple[int, ...], dtype: torch.dtype) -> None:
    assert structure("conv2d", [torch.empty(values, dtype=dtype), torch.empty(weight, dtype=dtype)], {}) is None


KINDS: dict[str, tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ("conv2d", (2, 128, 12, 13), (130, 128, 3, 3), {"padding": 1}),
    "strided": ("conv2d", (2, 128, 24, 27), (130, 128, 3, 3), {"padding": 1, "stride": 2}),
    "grouped": ("conv1d", (2, 256, 160), (256, 128, 3), {"padding": 2, "groups": 2, "dilation": 2}),
    "transposed": ("conv_transpose2d", (2, 130, 12, 12), (130, 128, 3, 3), {"padding": 1, "stride": 2}),
}


def rounded_once(kind: str, dtype: torch.dtype, seed: int) -> tuple[Convolution, list[torch.Tensor], torch.Tensor]:
    operation, values, weight, options = KINDS[kind]
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in (values, weight)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(convolution, "_LEAST_CHANNELS", dict.fromkeys(DTYPES, 1))
        found = structure(operation, tensors, options)
    assert found is not None
    return found, tensors, convolved(operation, [tensor.double() for tensor in tensors], options).to(dtype)


def is_cleared(found: Convolution, result: torch.Tensor, seed: int = 0) -> bool:
    by = _BY.select("conv2d", output_dtype=result.dtype, input_dtypes={result.dtype})
    return screening(examine(found.forward(result), seed), by).is_cleared


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(st.sampled_from(DTYPES), SEEDS)
def test_a_correct_convolution_is_cleared(kind: str, dtype: torch.dtype, seed: int) -> None:
    found, _, result = rounded_once(kind, dtype, seed)
    assert is_cleared(found, result, seed)


def _place(result: torch.Tensor) -> None:
    result[-1, ..., 3] += result.abs().mean()


def _channel(result: torch.Tensor) -> None:
    result[:, 5] = result[:, 6]


def _tile(result: torch.Tensor) -> None:
    result[0, :64, ..., :8] *= 1.1


def _border(result: torch.Tensor) -> None:
    result[..., 0] = result[..., 1]


def _sample(result: torch.Tensor) -> None:
    result[1] = result[0]


def _not_a_number(result: torch.Tensor) -> None:
    result[1, 3, ..., 2] = float("nan")


@pytest.mark.parametrize("change", [_place, _channel, _tile, _border, _sample, _not_a_number])
@settings(max_examples=6)
@given(st.sampled_from([*KINDS]), st.sampled_from(DTYPES), SEEDS)
def test_a_changed_place_channel_tile_border_or_sample_is_never_cleared(
    change: Callable[[torch.Tensor], None], kind: str, dtype: torch.dtype, seed: int
) -> None:
    found, _, result = rounded_once(kind, dtype, seed)
    change(result)
    assert not is_cleared(found, result, seed)


@settings(max_examples=12)
@given(st.sampled_from([*KINDS]), st.sampled_from(DTYPES), SEEDS, st.data())
def test_a_kernel_without_one_of_its_taps_is_never_cleared(
    kind: str, dtype: torch.dtype, seed: int, data: st.DataObject
) -> None:
    found, (values, weight), _ = rounded_once(kind, dtype, seed)
    operation, *_, options = KINDS[kind]
    lacking = weight.clone()
    lacking[(slice(None), slice(None), *(data.draw(st.integers(0, size - 1)) for size in weight.shape[2:]))] = 0
    wrong = convolved(operation, [values.double(), lacking.double()], options).to(dtype)
    assert not is_cleared(found, wrong, seed)


@settings(max_examples=8)
@given(st.sampled_from([*KINDS]), SEEDS)
def test_kernels_that_are_flipped_or_shifted_are_never_cleared(kind: str, seed: int) -> None:
    found, (values, weight), _ = rounded_once(kind, torch.bfloat16, seed)
    operation, *_, options = KINDS[kind]
    for changed in (weight.flip(-1), weight.roll(1, -1), weight.roll(1, 0)):
        wrong = convolved(operation, [values.double(), changed.double()], options).bfloat16()
        assert not is_cleared(found, wrong, seed)


def _tap(gradient: torch.Tensor) -> None:
    gradient[..., 0] = gradient[..., 1]


def _kernel(gradient: torch.Tensor) -> None:
    gradient[-1] *= 1.2


@pytest.mark.parametrize("path", ["args.0", "args.1"])
@pytest.mark.parametrize("change", [None, _tap, _kernel, _channel, _not_a_number])
@settings(max_examples=4)
@given(st.sampled_from([*KINDS]), st.sampled_from(DTYPES), SEEDS)
def test_gradients_are_cleared_unless_a_tap_kernel_place_or_channel_is_changed(
    change: Callable[[torch.Tensor], None] | None, path: str, kind: str, dtype: torch.dtype, seed: int
) -> None:
    found, tensors, result = rounded_once(kind, dtype, seed)
    operation, *_, options = KINDS[kind]
    wide = [tensor.double().requires_grad_() for tensor in tensors]
    arriving = torch.randn(result.shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    gradients = torch.autograd.grad(convolved(operation, wide, options), wide, arriving.double())
    gradient = gradients[int(path[-1])].to(dtype)
    if change is not None:
        change(gradient)
    by = _BY.select("conv2d", output_dtype=dtype, input_dtypes={dtype}, backward=True)
    assert screening(examine(found.backward(path, gradient, arriving), seed), by).is_cleared is (change is None)
