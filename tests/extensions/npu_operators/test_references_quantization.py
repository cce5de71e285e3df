"""Quantization against loops over elements, and what is computed on its results."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pytest_msprobe.extensions.npu_operators.quantization.quantization import (
    npu_anti_quant,
    npu_dynamic_quant,
    npu_dynamic_quant_asymmetric,
    npu_group_quant,
    npu_quantize,
)
from pytest_msprobe.extensions.npu_operators.quantization.quantized_activations import npu_swiglu_quant
from pytest_msprobe.extensions.npu_operators.quantization.quantized_layers import (
    npu_add_rms_norm_dynamic_quant,
    npu_add_rms_norm_quant,
    npu_rms_norm_quant,
)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def whole(*shape: int, seed: int = 0, low: int = -128, high: int = 128) -> Tensor:
    return torch.randint(low, high, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor | None, expected: object) -> None:
    assert actual is not None
    np.testing.assert_allclose(actual.detach().numpy(), np.asarray(expected), rtol=1e-12, atol=1e-13)


def to_int8(values: object) -> list[object]:
    """Each number by Python's round, which goes half to even, kept within [-128, 127]."""
    return np.vectorize(lambda value: max(-128, min(127, round(Fraction(float(value))))))(np.asarray(values)).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("axis", [0, 1])
def test_quantizing_divides_along_the_axis(axis: int) -> None:
    x, scales = draw(4, 4) * 30, draw(4, seed=1).abs() + 0.1
    zero_points = torch.tensor([1, -2, 3, 0], dtype=torch.int32)
    expected = [[x[i, j] / scales[(i, j)[axis]] + zero_points[(i, j)[axis]] for j in range(4)] for i in range(4)]
    found = npu_quantize(x, scales, zero_points, torch.qint8, axis)
    assert found.tolist() == to_int8(expected)
    assert found.dtype is torch.int8


@pytest.mark.parametrize(("axis", "dim"), [(-2, 0), (-1, 1), (1, 1), (0, 1)])
def test_quantizing_by_products_runs_along_the_last_dimension_or_the_one_before(axis: int, dim: int) -> None:
    x, scales = draw(4, 4) * 30, draw(4, seed=1)
    expected = [[x[i, j] * scales[(i, j)[dim]] for j in range(4)] for i in range(4)]
    assert npu_quantize(x, scales, None, torch.int8, axis, False).tolist() == to_int8(expected)


def test_quantizing_rounds_half_to_even_and_saturates() -> None:
    x = torch.tensor([0.5, 1.5, -2.5, 1000.0, -1000.0])
    one = torch.ones(1)
    assert npu_quantize(x, one, None, torch.qint8, 0).tolist() == [0, 2, -2, 127, -128]
    assert npu_quantize(x, one, None, torch.quint8, 0).tolist() == [0, 2, 0, 255, 0]
    assert npu_quantize(x, one, None, torch.int32, 0).tolist() == [0, 2, -2, 1000, -1000]


# the examples of torch_npu's documentation
def test_the_documentation_s_examples_come_out() -> None:
    x = torch.tensor([[0.7261, 0.3726, 0.9126], [0.9023, 0.9990, 0.1279], [0.8628, 0.6240, 0.9028]]).half()
    y, scale = npu_dynamic_quant(x)
    assert y.tolist() == [[101, 52, 127], [115, 127, 16], [121, 88, 127]]
    assert scale.dtype is torch.float32
    np.testing.assert_allclose(scale.numpy(), [0.0072, 0.0079, 0.0071], atol=5e-5)
    x = torch.tensor([[0.6680, 0.9492, 0.0845], [0.1924, 0.5278, 0.1484], [0.6631, 0.9497, 0.0957]]).half()
    y, _ = npu_dynamic_quant(x, smooth_scales=torch.tensor([0.8042, 0.0884, 0.8901]).half())
    assert y.tolist() == [[127, 20, 18], [127, 38, 108], [127, 20, 20]]
    four = torch.tensor([1, 2, 3, 4], dtype=torch.int8)
    two = torch.tensor([2.0])
    assert npu_anti_quant(four, two, offset=two, dst_dtype=torch.float16).tolist() == [6.0, 8.0, 10.0, 12.0]


def test_group_quantizing_is_that_of_the_documentation() -> None:
    x = torch.tensor(
        [
            [1.0029, -1.2373, 1.0107, -0.2681], [0.5791, 0.1101, 1.0059, -0.9658], [-1.7637, 1.7588, -1.3193, 0.3989],
            [1.3262, 0.4854, 1.9551, 0.9697], [-0.8770, -1.8828, 2.1777, -0.0050], [0.4722, 0.5605, 0.8267, -0.9810],
        ]
    ).half()  # fmt: skip
    scale = torch.tensor(
        [
            [-0.2710, -0.9381, 0.2850, -1.1230], [0.5217, -0.7233, -0.1730, -0.1245],
            [-1.5433, -0.9129, -2.2095, 1.7371], [-0.8253, 0.3973, 0.1430, 0.3885],
        ]
    )  # fmt: skip
    found = npu_group_quant(x, scale, torch.tensor([1, 4, 6, 6]), offset=torch.tensor([-1.1658]))
    assert found.tolist() == [
        [-1, 0, -1, -1], [-1, -1, -1, -1], [-2, -2, -1, -1], [0, -2, -2, -1], [0, 1, -6, -1], [-2, -2, -3, -3],
    ]  # fmt: skip


def test_dynamic_quantization_of_groups_gives_each_its_smooth_scales() -> None:
    x, smooth = draw(5, 4), draw(2, 4, seed=1)
    y, scale = npu_dynamic_quant(x, smooth_scales=smooth, group_index=torch.tensor([2, 5], dtype=torch.int32))
    for row in range(5):
        values = (x[row] * smooth[0 if row < 2 else 1]).tolist()
        step = max(map(abs, values)) / 127
        assert y[row].tolist() == to_int8([value / step for value in values])
        assert float(scale[row]) == pytest.approx(step, rel=1e-12)


def test_a_row_of_zeros_stays_zero() -> None:
    y, scale = npu_dynamic_quant(torch.zeros(2, 3))
    assert (y.tolist(), scale.tolist()) == ([[0] * 3] * 2, [0.0, 0.0])


def test_asymmetric_quantization_uses_the_whole_range() -> None:
    x = draw(3, 6) + 2
    y, scale, offset = npu_dynamic_quant_asymmetric(x)
    for row in range(3):
        low, high = float(x[row].min()), float(x[row].max())
        step = (high - low) / 255
        shift = 127 - high / step
        assert float(scale[row]) == pytest.approx(step, rel=1e-12)
        assert float(offset[row]) == pytest.approx(shift, rel=1e-12)
        assert y[row].tolist() == to_int8([value / step + shift for value in x[row].tolist()])
    assert (int(y.min()), int(y.max())) == (-128, 127)


@pytest.mark.parametrize(
    ("x", "options", "reported"),
    [
        (torch.zeros(2, 3), {"quant_mode": "pertoken", "dst_type_max": 0.0}, "rows_of_one_value"),
        (draw(3, 6), {"quant_mode": "pergroup"}, "quant_mode"),
    ],
)
def test_what_asymmetric_quantization_leaves_open_has_no_golden_definition(
    x: torch.Tensor, options: dict[str, Any], reported: str
) -> None:
    with pytest.raises(NotImplementedError, match=f"no golden definition with {reported}"):
        npu_dynamic_quant_asymmetric(x, **options)


def rms_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float) -> np.ndarray:
    rows = [row / np.sqrt(sum(value * value for value in row) / len(row) + epsilon) for row in x]
    return np.array(rows) * gamma + beta


def test_normalizations_are_quantized_as_they_say() -> None:
    x1, x2, gamma, beta = draw(3, 5), draw(3, 5, seed=1), draw(5, seed=2), draw(5, seed=3)
    scale, offset = draw(5, seed=4).abs() + 0.02, torch.tensor([1, 2, 3, -4, 5], dtype=torch.int32)
    y = rms_norm((x1 + x2).numpy(), gamma.numpy(), beta.numpy(), 1e-6)
    by_division = to_int8(y / scale.numpy() + offset.numpy())
    by_product = to_int8(y * scale.numpy() + offset.numpy())
    first, second, x = npu_add_rms_norm_quant(x1, x2, gamma, scale, offset, beta)
    assert (first.tolist(), second) == (by_division, None)
    assert x.equal(x1 + x2)
    first, second, _ = npu_add_rms_norm_quant(x1, x2, gamma, scale, offset, beta, scale * 2, offset, div_mode=False)
    assert first.tolist() == by_product
    assert second is not None
    assert second.tolist() == to_int8(y * 2 * scale.numpy() + offset.numpy())
    alone = rms_norm(x1.numpy(), gamma.numpy(), beta.numpy(), 1e-3)
    found = npu_rms_norm_quant(x1, gamma, beta, torch.tensor([30.0]), torch.tensor([3], dtype=torch.int8), 1e-3)
    assert found.tolist() == to_int8(alone * 30 + 3)


@pytest.mark.parametrize(
    ("smooth", "mask", "there"),
    [
        ((False, False), None, (True, False)),
        ((True, False), None, (True, False)),
        ((True, True), None, (True, True)),
        ((False, False), [False, True], (False, True)),
        ((False, False), [True, True], (True, True)),
    ],
)
def test_dynamic_normalization_gives_what_the_mask_asks_for(
    smooth: tuple[bool, bool], mask: list[bool] | None, there: tuple[bool, bool]
) -> None:
    x1, x2, gamma, beta = draw(3, 5), draw(3, 5, seed=1), draw(5, seed=2), draw(5, seed=3)
    factors = [draw(5, seed=4 + i) if wanted else None for i, wanted in enumerate(smooth)]
    y1, y2, x, scale1, scale2 = npu_add_rms_norm_dynamic_quant(
        x1, x2, gamma, smooth_scale1=factors[0], smooth_scale2=factors[1], beta=beta, output_mask=mask
    )
    y = rms_norm((x1 + x2).numpy(), gamma.numpy(), beta.numpy(), 1e-6)
    assert x.equal(x1 + x2)
    for found, scale, factor, wanted in zip((y1, y2), (scale1, scale2), factors, there, strict=True):
        if not wanted:
            assert found is scale is None
            continue
        values = y if factor is None else y * factor.numpy()
        step = np.abs(values).max(-1) / 127
        close(scale, step)
        assert found is not None
        assert found.tolist() == to_int8(values / step[:, None])


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize(("kind", "groups"), [(0, [1, 4]), (1, [1, 3])])
def test_swiglu_is_quantized_by_row_and_group(left: bool, kind: int, groups: list[int]) -> None:
    x, smooth = draw(4, 6), draw(2, 3, seed=1)
    y, scale = npu_swiglu_quant(
        x,
        smooth_scales=smooth,
        group_index=torch.tensor(groups),
        activate_left=left,
        quant_mode=1,
        group_list_type=kind,
    )
    for row in range(4):
        halves = (x[row, :3].numpy(), x[row, 3:].numpy())
        gate, linear = halves if left else halves[::-1]
        values = gate / (1 + np.exp(-gate)) * linear * smooth[0 if row < 1 else 1].numpy()
        step = np.abs(values).max() / 127
        assert scale is not None
        assert float(scale[row]) == pytest.approx(1 / step, rel=1e-12)
        assert y[row].tolist() == to_int8(values / step)


X, INT32, PACKED = torch.ones(2, 8), torch.ones(2, 8, dtype=torch.int32), torch.ones(8, dtype=torch.int64)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: npu_dynamic_quant(X, dst_type=torch.float16), "dst_type torch.float16"),
        (lambda: npu_dynamic_quant(X, quant_mode="pergroup"), "quant_mode"),
        (lambda: npu_quantize(X, X[0], None, torch.int64), "dtype torch.int64"),
        (lambda: npu_anti_quant(INT32, X, src_dtype=torch.float16), "src_dtype torch.float16"),
        (lambda: npu_group_quant(X, X, PACKED, dst_dtype=torch.int64), "dst_dtype torch.int64"),
        (lambda: npu_swiglu_quant(X, dst_type=torch.quint4x2), "dst_type torch.quint4x2"),
    ],
)
def test_what_has_no_golden_definition_is_named(call: object, named: str) -> None:
    with pytest.raises(NotImplementedError, match=f"has no golden definition with {named}"):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("ends", [[1, 2], [3, 2, 5], [-1, 5]])
def test_groups_that_do_not_share_out_the_rows_are_refused(ends: list[int]) -> None:
    with pytest.raises(ValueError, match="do not share out 5 rows"):
        npu_group_quant(torch.ones(5, 2), torch.ones(len(ends), 2), torch.tensor(ends))
