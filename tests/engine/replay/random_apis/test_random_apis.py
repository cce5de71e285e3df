"""Random results of a healthy torch pass at every size, and planted faults are found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_msprobe.engine.replay.random_apis.properties import RandomProperty
from pytest_msprobe.engine.replay.randomness import random_property

SIZES = [1, 2, 7, 99, 100, 10_000]
SEEDS = range(8)
FLOATS = [torch.float32, torch.bfloat16, torch.float16]


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def property_of(api: str, *args: Any, **kwargs: Any) -> RandomProperty:
    found = random_property(api, args, kwargs)
    assert found is not None
    return found


def outcome(api: str, output: Any, *args: Any, **kwargs: Any) -> str:
    verdict = property_of(api, *args, **kwargs).check_forward(output)
    assert verdict.standard == "random"
    assert verdict.outcome != "fail" or verdict.reason
    return verdict.outcome


MASKS: list[tuple[str, Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = [
    ("dropout", F.dropout, (0.3,), ()),
    ("dropout", torch.dropout, (0.9, True), ()),
    ("native_dropout", torch.native_dropout, (0.5, True), ()),
    ("alpha_dropout", F.alpha_dropout, (0.3, True), ()),
    ("dropout1d", F.dropout1d, (0.4,), (4, 3)),
    ("dropout2d", F.dropout2d, (0.4,), (4, 3, 1)),
    ("dropout3d", F.dropout3d, (0.4,), (4, 1, 1, 3)),
    ("feature_dropout", torch.feature_dropout, (0.4, True), (4, 3)),
    ("feature_alpha_dropout", F.feature_alpha_dropout, (0.4, True), (4, 3)),
    ("rrelu", F.rrelu, (0.1, 0.4, True), ()),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("api", "function", "rest", "shape"), MASKS)
def test_healthy_dropout_and_its_gradient_pass(
    api: str, function: Callable[..., Any], rest: tuple[Any, ...], shape: tuple[int, ...], size: int
) -> None:
    for seed in SEEDS:
        dtype = torch.float32 if api == "rrelu" else FLOATS[seed % 3]
        x = draw(-(-size // 4) if shape else size, *shape, dtype=dtype, seed=seed)
        torch.manual_seed(seed + 1000)  # not the stream of the inputs
        leaf = x.clone().requires_grad_()
        y = function(leaf, *rest)
        first = y[0] if isinstance(y, tuple) else y
        grad = draw(*first.shape, dtype=dtype, seed=seed + 100)
        first.backward(grad)
        judged = property_of(api, x, *rest)
        forward = judged.check_forward(y)
        assert forward.outcome == "pass", forward
        backward = judged.check_backward(y, [grad], [leaf.grad])
        assert backward is not None
        assert backward.outcome == "pass", backward


DRAWS: list[tuple[str, Callable[..., Any], Callable[[int, torch.dtype], tuple[Any, ...]]]] = [
    ("bernoulli", torch.bernoulli, lambda n, d: (draw(n).sigmoid().to(d),)),
    ("bernoulli_", Tensor.bernoulli_, lambda n, d: (draw(n, dtype=d), 0.2)),
    ("bernoulli_", Tensor.bernoulli_, lambda n, d: (draw(n, dtype=d),)),
    ("uniform_", Tensor.uniform_, lambda n, d: (draw(n, dtype=d),)),
    ("uniform_", Tensor.uniform_, lambda n, d: (draw(n, dtype=d), -3.0, 5.0)),
    ("uniform_", Tensor.uniform_, lambda n, d: (draw(n, dtype=d), 100.0, 101.0)),
    ("normal_", Tensor.normal_, lambda n, d: (draw(n, dtype=d),)),
    ("normal_", Tensor.normal_, lambda n, d: (draw(n, dtype=d), 1000.0, 0.01)),
    ("normal", torch.normal, lambda n, d: (draw(n, dtype=d), draw(n, dtype=d).abs())),
    ("normal", torch.normal, lambda n, d: (1.0, 2.0, (n,))),
    ("rand", torch.rand, lambda n, d: (n, 1)),
    ("rand_like", torch.rand_like, lambda n, d: (draw(n, dtype=d),)),
    ("randn", torch.randn, lambda n, d: ((n, 1),)),
    ("randn_like", torch.randn_like, lambda n, d: (draw(n, dtype=d),)),
    ("randn_like", torch.randn_like, lambda n, d: (torch.zeros(n, dtype=torch.complex64),)),
    ("exponential_", Tensor.exponential_, lambda n, d: (draw(n, dtype=d), 2.0)),
    ("geometric_", Tensor.geometric_, lambda n, d: (draw(n, dtype=d), 0.2)),
    ("cauchy_", Tensor.cauchy_, lambda n, d: (draw(n, dtype=d),)),
    ("log_normal_", Tensor.log_normal_, lambda n, d: (draw(n, dtype=d),)),
    ("poisson", torch.poisson, lambda n, d: (draw(n).mul(5).abs().to(d),)),
    ("random_", Tensor.random_, lambda n, d: (draw(n, dtype=d),)),
    ("random_", Tensor.random_, lambda n, d: (draw(n, dtype=d), 10)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.int64),)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.uint8),)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.bool),)),
    ("random_", Tensor.random_, lambda n, d: (torch.zeros(n, dtype=torch.int32), -5, 17)),
    ("randint", torch.randint, lambda n, d: (3 * 2**30, (n,))),
    ("randint", torch.randint, lambda n, d: (2, 9, (n,))),
    ("randint_like", torch.randint_like, lambda n, d: (draw(n, dtype=d), 5)),
    ("randperm", torch.randperm, lambda n, d: (n,)),
    ("multinomial", torch.multinomial, lambda n, d: (draw(-(-n // 4), 6).abs().to(d), 4, True)),
    ("multinomial", torch.multinomial, lambda n, d: (draw(-(-n // 4), 6).abs().to(d), 4)),
    ("multinomial", torch.multinomial, lambda n, d: (draw(6).abs().to(d), n, True)),
    ("gumbel_softmax", F.gumbel_softmax, lambda n, d: (draw(-(-n // 4), 5, dtype=d),)),
    ("gumbel_softmax", F.gumbel_softmax, lambda n, d: (draw(-(-n // 4), 5, dtype=d), 10.0, True)),
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("api", "function", "arguments"), DRAWS)
def test_healthy_draws_pass(
    api: str, function: Callable[..., Any], arguments: Callable[[int, torch.dtype], tuple[Any, ...]], size: int
) -> None:
    for seed in SEEDS:
        args = arguments(size, FLOATS[seed % 3])
        torch.manual_seed(seed + 1000)  # not the stream of the inputs
        given = [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]
        verdict = property_of(api, *args).check_forward(function(*given))
        assert verdict.outcome == "pass", verdict


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


def masked(x: Tensor, p: float, scale: float, seed: int = 77) -> Tensor:
    keep = torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) >= p
    return (x * keep * scale).to(x.dtype)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("off", [-0.1, 0.1])
def test_dropout_with_a_share_off_by_a_tenth_is_found(dtype: torch.dtype, off: float) -> None:
    x = draw(10_000, dtype=dtype)
    assert outcome("dropout", masked(x, 0.5 + off, 2.0), x, 0.5) == "fail"


@pytest.mark.parametrize("n", [20, 10_000])
def test_dropout_with_a_wrong_scale_is_found(n: int) -> None:
    x = draw(n)
    assert outcome("dropout", masked(x, 0.3, 1.0), x, 0.3) == "fail"


@pytest.mark.parametrize("dtype", FLOATS)
def test_one_wrong_value_among_twenty_kept_is_found(dtype: torch.dtype) -> None:
    x = draw(20, dtype=dtype)
    y = masked(x, 0.5, 2.0)
    y[int(y.nonzero()[0])] *= 1.1
    assert outcome("dropout", y, x, 0.5) == "fail"


def test_a_nan_in_dropout_is_found() -> None:
    x = draw(20)
    y = masked(x, 0.5, 2.0)
    y[3] = torch.nan
    assert outcome("dropout", y, x, 0.5) == "fail"


@pytest.mark.parametrize("keep", [0.0, 2.0])
def test_dropout_that_keeps_or_drops_everything_is_found(keep: float) -> None:
    x = draw(100)
    assert outcome("dropout", x * keep, x, 0.5) == "fail"


def test_dropout_of_the_first_half_is_found() -> None:
    x = draw(200)
    y = 2 * x
    y[:100] = 0
    verdict = property_of("dropout", x, 0.5).check_forward(y)
    assert verdict.outcome == "fail"
    assert "unlike neighbours" in verdict.reason


def test_dropout_of_everything_must_be_zero() -> None:
    x = draw(20)
    assert outcome("dropout", torch.zeros(20), x, 1.0) == "pass"
    assert outcome("dropout", x, x, 1.0) == "fail"


def test_zeros_of_the_input_do_not_count_as_dropped() -> None:
    x = draw(1000)
    x[::2] = 0
    assert outcome("dropout", masked(x, 0.1, 1 / 0.9), x, 0.1) == "pass"


def test_infinite_and_overflowing_inputs_are_no_faults() -> None:
    x = torch.tensor([torch.inf, torch.nan, 60000.0, -60000.0], dtype=torch.float16)
    torch.manual_seed(0)
    assert outcome("dropout", F.dropout(x, 0.5), x, 0.5) == "pass"


def test_a_result_of_another_shape_or_dtype_is_found() -> None:
    x = draw(4, 5)
    assert outcome("dropout", masked(x, 0.5, 2.0).T, x, 0.5) == "fail"
    assert outcome("dropout", masked(x, 0.5, 2.0).double(), x, 0.5) == "fail"


@pytest.mark.parametrize("api", ["dropout1d", "dropout2d", "dropout3d", "feature_dropout"])
def test_a_channel_dropped_in_part_is_found(api: str) -> None:
    shape = {
        "dropout1d": (5, 4, 6),
        "dropout2d": (5, 4, 2, 3),
        "dropout3d": (5, 4, 1, 2, 3),
        "feature_dropout": (5, 4, 6),
    }
    x = draw(*shape[api])
    y = 2 * x
    y[0] = 0
    rest = (0.5, True)
    y.reshape(20, 6)[7, 2] = 0
    verdict = property_of(api, x, *rest).check_forward(y)
    assert verdict.reason == "1 channels are dropped in part"


def test_without_a_batch_the_first_dimension_is_the_channel() -> None:
    x = draw(6, 5)
    y = 2 * x
    y[::2] = 0
    assert outcome("dropout1d", y, x) == "pass"
    y[1, 0] = 0
    assert outcome("dropout1d", y, x) == "fail"


def test_alpha_dropout_with_plain_dropouts_values_is_found() -> None:
    x = draw(20)
    assert outcome("alpha_dropout", masked(x, 0.5, 2.0), x, 0.5, True) == "fail"


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_a_mask_that_repeats_along_any_dimension_is_found(dim: int) -> None:
    x = torch.randn(24, 20, 22)
    row = masked(torch.ones_like(x).narrow(dim, 0, 1), 0.1, 1 / 0.9)
    assert "unlike neighbours" in property_of("dropout", x, 0.1).check_forward(x * row).reason


def test_a_returned_mask_that_contradicts_the_result_is_found() -> None:
    x = draw(50)
    torch.manual_seed(0)
    y, mask = torch.native_dropout(x, 0.5, True)
    mask[4] = ~mask[4]
    verdict = property_of("native_dropout", x, 0.5, True).check_forward((y, mask))
    assert verdict.reason == "the returned mask contradicts 1 elements"


@pytest.mark.parametrize("n", [20, 10_000])
@pytest.mark.parametrize("api", ["dropout", "alpha_dropout"])
def test_a_gradient_through_another_mask_is_found(api: str, n: int) -> None:
    x, grad = draw(n), draw(n, seed=1)
    torch.manual_seed(0)
    y = getattr(F, api)(x, 0.5, True)
    leaf = x.clone().requires_grad_()
    getattr(F, api)(leaf, 0.5, True).backward(grad)
    verdict = property_of(api, x, 0.5, True).check_backward(y, [grad], [leaf.grad])
    assert verdict is not None
    assert verdict.outcome == "fail"


def test_a_gradient_without_the_scale_is_found() -> None:
    x, grad = draw(20), draw(20, seed=1)
    y = masked(x, 0.5, 2.0)
    verdict = property_of("dropout", x, 0.5).check_backward(y, [grad], [grad * (y != 0)])
    assert verdict is not None
    assert verdict.outcome == "fail"


def test_a_channels_gradient_follows_the_channel_even_where_the_input_is_zero() -> None:
    x, grad = draw(4, 3, 5), draw(4, 3, 5, seed=1)
    x[..., 0] = 0
    y = 2 * x
    y[::2] = 0
    right = 2 * grad
    right[::2] = 0
    judged = property_of("dropout1d", x, 0.5)
    verdict = judged.check_backward(y, [grad], [right])
    assert verdict is not None
    assert verdict.outcome == "pass"
    right[0, 0, 0] = 2 * grad[0, 0, 0]
    verdict = judged.check_backward(y, [grad], [right])
    assert verdict is not None
    assert verdict.outcome == "fail"


def test_rrelu_slopes_out_of_range_or_stuck_are_found() -> None:
    x = draw(200)
    leaky = torch.where(x < 0, x * 0.5, x)
    assert outcome("rrelu", leaky, x, 0.1, 0.4, True) == "fail"
    stuck = torch.where(x < 0, x * 0.25, x)
    assert outcome("rrelu", stuck, x, 0.1, 0.4, True) == "fail"
    torch.manual_seed(0)
    changed = F.rrelu(x, 0.1, 0.4, True)
    changed[int((x > 0).nonzero()[0])] *= 1.5
    assert outcome("rrelu", changed, x, 0.1, 0.4, True) == "fail"


def test_a_gradient_with_other_slopes_is_found() -> None:
    x, grad = draw(20), draw(20, seed=1)
    torch.manual_seed(0)
    y = F.rrelu(x, 0.1, 0.4, True)
    wrong = torch.where(x < 0, grad * 0.25, grad)
    verdict = property_of("rrelu", x, 0.1, 0.4, True).check_backward(y, [grad], [wrong])
    assert verdict is not None
    assert verdict.outcome == "fail"


def generated(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


N = 10_000
ZEROS = torch.zeros(N)
BYTES = torch.zeros(N, dtype=torch.uint8)
FOURS = torch.full((N,), 4.0)
UNIT = torch.rand(N, generator=generated())
NORMAL = torch.randn(N, generator=generated())
FAULTS: list[tuple[str, str, Tensor, tuple[Any, ...]]] = [
    ("a constant where two differ", "rand", torch.full((3,), 0.37), (3,)),
    ("stuck uniform", "rand", torch.full((N,), 0.37), (N,)),
    ("one value above the range", "rand", UNIT.index_fill(0, torch.tensor([5]), 1.01), (N,)),
    ("a negative value", "uniform_", torch.rand(7, generator=generated()) - 2, (torch.zeros(7),)),
    ("half the range", "rand", torch.rand(100, generator=generated()) / 2, (100,)),
    ("a tenth of the range missing", "rand", UNIT * 0.9, (N,)),
    ("a squared uniform", "rand", UNIT ** 1.2, (N,)),
    ("NaN among normals", "randn", torch.full((1,), torch.nan), (1,)),
    ("a normal ten percent too wide", "randn", NORMAL * 1.1, (N,)),
    ("a normal shifted by a tenth", "randn", NORMAL + 0.1, (N,)),
    ("normals without tails", "randn", (UNIT - 0.5) * 12**0.5, (N,)),
    ("mean ignored", "normal_", torch.randn(100, generator=generated()), (torch.zeros(100), 3.0)),
    ("std as variance", "normal", 1 + 4 * NORMAL, (1.0, 2.0, (N,))),
    ("another size", "randn", torch.randn(4), (5,)),
    ("integers without the highest", "randint", torch.randint(0, 9, (N,), generator=generated()), (10, (N,))),
    ("an integer too many", "randint", torch.tensor([10]), (10, (1,))),
    ("an integer too low", "randint", torch.tensor([1]), (2, 10, (1,))),
    ("stuck integers", "randint", torch.full((50,), 3), (10, (50,))),
    ("bytes without the high half", "random_", BYTES.clone().random_(0, 128, generator=generated()), (BYTES,)),
    ("a repeated number", "randperm", torch.tensor([0, 2, 2, 3]), (4,)),
    ("nothing permuted", "randperm", torch.arange(20), (20,)),
    ("an exponential of another rate", "exponential_", UNIT.log().neg(), (ZEROS, 1.2)),
    ("a negative exponential", "exponential_", torch.tensor([-0.1]), (torch.zeros(1),)),
    ("geometric from 0", "geometric_", torch.zeros(1), (torch.zeros(1), 0.5)),
    ("geometric of another p", "geometric_", ZEROS.clone().geometric_(0.3, generator=generated()), (ZEROS, 0.2)),
    ("cauchy of another width", "cauchy_", ZEROS.clone().cauchy_(0, 1.3, generator=generated()), (ZEROS,)),
    ("log normal of another std", "log_normal_", (1 + 1.8 * NORMAL).exp(), (ZEROS,)),
    ("rates instead of counts", "poisson", FOURS, (FOURS,)),
    ("poisson of another rate", "poisson", torch.poisson(FOURS + 0.3, generator=generated()), (FOURS,)),
    ("a fraction as a count", "poisson", torch.tensor([0.5]), (torch.tensor([1.0]),)),
    ("a count of rate 0", "poisson", torch.tensor([1.0]), (torch.tensor([0.0]),)),
    ("a half among zeros and ones", "bernoulli_", torch.tensor([0.0, 0.5]), (torch.zeros(2),)),
    ("bernoulli off by a tenth", "bernoulli_", ZEROS.clone().bernoulli_(0.6, generator=generated()), (ZEROS, 0.5)),
    ("one where p is 0", "bernoulli", torch.tensor([1.0]), (torch.tensor([0.0]),)),
    ("zero where p is 1", "bernoulli", torch.tensor([0.0]), (torch.tensor([1.0]),)),
    ("an index out of range", "multinomial", torch.tensor([3]), (torch.ones(3), 1)),
    ("an index of weight 0", "multinomial", torch.tensor([1]), (torch.tensor([1.0, 0.0]), 1)),
    ("a repeated index", "multinomial", torch.tensor([1, 1]), (torch.ones(3), 2)),
    ("weights ignored", "multinomial", (UNIT < 0.5).long(), (torch.tensor([0.4, 0.6]), N, True)),
    ("rows that do not sum to one", "gumbel_softmax", torch.full((1, 4), 0.3), (torch.zeros(1, 4),)),
    ("soft rows instead of hard", "gumbel_softmax", torch.full((1, 4), 0.25), (torch.zeros(1, 4), 1.0, True)),
    ("logits taken for the draw", "gumbel_softmax", torch.eye(4)[:1].expand(400, 4), (torch.zeros(400, 4), 1.0, True)),
]  # fmt: skip


@pytest.mark.parametrize(("api", "output", "args"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_planted_fault_is_found(api: str, output: Tensor, args: tuple[Any, ...]) -> None:
    assert outcome(api, output, *args) == "fail"


def test_probabilities_that_are_swapped_between_elements_are_found() -> None:
    p = torch.cat((torch.full((500,), 0.05), torch.full((500,), 0.95)))
    assert outcome("bernoulli", torch.bernoulli(p, generator=generated()), p) == "pass"
    assert outcome("bernoulli", torch.bernoulli(p.flip(0), generator=generated()), p) == "fail"


def test_a_draw_that_passes_a_gradient_on_is_found() -> None:
    x = draw(3)
    judged = property_of("bernoulli_", x)
    good = judged.check_backward(torch.zeros(3), [torch.ones(3)], [torch.zeros(3)])
    bad = judged.check_backward(torch.zeros(3), [torch.ones(3)], [torch.ones(3)])
    assert good is not None
    assert bad is not None
    assert (good.outcome, bad.outcome) == ("pass", "fail")


def test_gumbel_gradients_that_do_not_sum_to_zero_are_found() -> None:
    logits = draw(6, 4).requires_grad_()
    torch.manual_seed(0)
    y = F.gumbel_softmax(logits)
    grad = draw(6, 4, seed=1)
    y.backward(grad)
    assert logits.grad is not None
    judged = property_of("gumbel_softmax", logits.detach())
    good = judged.check_backward(y, [grad], [logits.grad])
    bad = judged.check_backward(y, [grad], [logits.grad + 0.1])
    assert good is not None
    assert bad is not None
    assert (good.outcome, bad.outcome) == ("pass", "fail")


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
