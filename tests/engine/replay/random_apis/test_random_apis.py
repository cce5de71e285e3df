"""Which calls are random, and what is asked of results that are neither a mask nor numbers of a known distribution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.ops.op_info import random_property
from tests.support.dumps.random_results import FLOATS, draw, outcome, property_of


@pytest.mark.parametrize(
    ("api", "args", "kwargs"),
    [
        ("dropout", (draw(3), 0.5, False), {}),
        ("dropout", (draw(3),), {"training": False}),
        ("dropout", (draw(3),), {"p": 0.0}),
        ("native_dropout", (draw(3), 0.5), {"train": False}),
        ("alpha_dropout", (draw(3), 0.5), {}),
        ("feature_alpha_dropout", (draw(3, 2), 0.5), {}),
        ("nn.dropout2d", (draw(3, 2),), {"training": False}),
        ("rrelu", (draw(3),), {}),
        ("rrelu", (draw(3), 0.2, 0.2, True), {}),
        ("scaled_dot_product_attention", (draw(2, 3), draw(2, 3), draw(2, 3)), {}),
        ("scaled_dot_product_attention", (draw(2, 3), draw(2, 3), draw(2, 3), None, 0.0), {}),
        ("npu_fusion_attention", (draw(1, 2, 3),) * 3 + (1, "BSH"), {"keep_prob": 1.0}),
        ("lstm", (draw(2, 3, 4), [draw(1, 3, 4)], [], True, 2, 0.0, True, False, False), {}),
        ("lstm", (draw(2, 3, 4), [draw(1, 3, 4)], [], True, 1, 0.5, True, False, False), {}),
        ("lstm", (draw(2, 3, 4), [draw(1, 3, 4)], [], True, 2, 0.5, False, False, False), {}),
        ("linear", (draw(3, 2), draw(4, 2)), {}),
    ],
)
def test_a_call_that_is_not_random_has_no_random_property(
    api: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    assert random_property(api, args, kwargs) is None


def test_dropout_is_random_by_its_defaults() -> None:
    assert random_property("dropout", (draw(3),), {}) is not None


def test_a_namespace_or_an_overload_in_the_name_may_stay() -> None:
    assert random_property("nn.dropout2d", (draw(3, 2),), {}) is not None
    assert random_property("bernoulli.p", (draw(3), 0.5), {}) is not None


def test_a_call_that_lacks_an_argument_is_named() -> None:
    with pytest.raises(TypeError, match="recorded call of dropout lacks its argument 'input'"):
        random_property("dropout", (), {"p": 0.5})


@pytest.mark.parametrize(
    ("api", "args", "kwargs", "output"),
    [
        ("empty", (2, 3), {"dtype": torch.int32}, torch.empty(2, 3, dtype=torch.int32)),
        ("empty", ((2, 3),), {}, torch.empty(2, 3)),
        ("empty_like", (draw(4),), {}, torch.empty(4)),
        ("new_empty", (draw(4), (2,)), {}, torch.empty(2)),
        ("new_empty", (draw(4), 2, 5), {"dtype": torch.int8}, torch.empty(2, 5, dtype=torch.int8)),
        ("empty_strided", ((2, 3), (1, 2)), {}, torch.empty(2, 3)),
        ("new_empty_strided", (draw(4), (2, 3), (1, 2)), {}, torch.empty(2, 3)),
    ],
)
def test_factories_without_values_promise_their_form_only(
    api: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
) -> None:
    verdict = property_of(api, *args, **kwargs).check_forward(output)
    assert verdict.outcome == "pass"
    assert "no values promised" in verdict.reason
    assert outcome(api, torch.empty(7, 7, dtype=output.dtype), *args, **kwargs) == "fail"


@pytest.mark.parametrize("dtype", FLOATS)
def test_attention_with_dropout_stays_within_its_values(dtype: torch.dtype) -> None:
    q, k, v = (draw(2, 4, 8, 16, dtype=dtype, seed=i) for i in range(3))
    torch.manual_seed(0)
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    args = (q, k, v, None, 0.5)
    assert outcome("scaled_dot_product_attention", out, *args) == "pass"
    assert outcome("scaled_dot_product_attention", out * 1000, *args) == "fail"
    assert outcome("scaled_dot_product_attention", out[0], *args) == "fail"


def test_lstm_with_dropout_stays_within_one() -> None:
    network = torch.nn.LSTM(4, 4, num_layers=2, dropout=0.5)
    x, state = draw(3, 2, 4), [draw(2, 2, 4), draw(2, 2, 4, seed=1)]
    args = (x, state, list(network.parameters()), True, 2, 0.5, True, False, False)
    torch.manual_seed(0)
    out = torch.lstm(*args)
    assert outcome("lstm", out, *args) == "pass"
    assert outcome("lstm", (out[0] * 100, *out[1:]), *args) == "fail"


@pytest.mark.parametrize(
    ("api", "args"),
    [
        ("gru", (draw(3, 2, 4), draw(2, 2, 4), [], True, 2, 0.5, True, False, False)),
        ("rnn_relu", (draw(3, 2, 4), draw(2, 2, 4), [], True, 2, 0.5, True, False, False)),
        ("multi_head_attention_forward", (draw(2, 1, 4),) * 3 + (4, 1, None, None, None, None, False, 0.5)),
    ],
)
def test_what_cannot_be_judged_is_skipped_with_its_reason(api: str, args: tuple[Any, ...]) -> None:
    verdict = property_of(api, *args).check_forward(draw(3, 2, 4))
    assert verdict.outcome == "skip"
    assert "no property" in verdict.reason


def test_fractional_pooling_takes_values_of_its_input() -> None:
    x = draw(1, 2, 8, 8)
    torch.manual_seed(0)
    out = F.fractional_max_pool2d(x, 2, 4)
    assert outcome("fractional_max_pool2d", out, x, 2, 4) == "pass"
    assert outcome("fractional_max_pool2d", out + 1, x, 2, 4) == "fail"
    assert random_property("fractional_max_pool2d", (x, 2, 4), {"_random_samples": draw(1, 2, 2)}) is None


def test_an_empty_tensor_has_nothing_to_be_wrong() -> None:
    for api, args in (
        ("dropout", (draw(0, 3),)),
        ("rand", (0, 3)),
        ("bernoulli_", (draw(0, 3),)),
        ("dropout2d", (draw(0, 2, 3, 3),)),
    ):
        output = torch.zeros(args[0].shape if isinstance(args[0], Tensor) else args)
        assert outcome(api, output, *args) == "pass"
