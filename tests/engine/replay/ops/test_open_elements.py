"""Elements that torch and the language leave open may have any value, and the result says how many; no other may."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from pytest_msprobe.results.result import LeftOpen, left_open_of
from tests.support.dumps.recorded_calls import recorded_call

FLOATS = torch.tensor([1.5, -3.0, 300.0, -1e10, math.inf, -math.inf, math.nan, 1e30])
OUT_OF_RANGE = "the cast number is outside of the dtype's range"
TOO_FAR = "the shift is negative or as wide as the number"
LEAST_BY_MINUS_ONE = "the least integer is divided by -1"
LEAST = torch.iinfo(torch.int32).min
INTS = torch.tensor([5, -7, 6, 1], dtype=torch.int32)
SHIFTS = torch.tensor([1, 32, -1, 40], dtype=torch.int32)


class Case(NamedTuple):
    """A call, what a device with other arithmetic gives, how many of its elements are open, and for which inputs."""

    program: Callable[[], object]
    elsewhere: list[float]
    open: int
    why: str


def _set() -> None:
    x = torch.zeros(10, dtype=torch.int8)
    x[1:9] = FLOATS


def _copied(dtype: torch.dtype) -> Callable[[], object]:
    return lambda: torch.zeros(2, 8, dtype=dtype).copy_(FLOATS)


def _divided(name: str) -> Callable[[], object]:
    dividend = torch.tensor([LEAST, 9, LEAST, -9], dtype=torch.int32)
    divisor = torch.tensor([-1, -1, 2, 2], dtype=torch.int32)
    return lambda: getattr(torch, name)(dividend, divisor)


def _left() -> None:
    x = INTS.clone()
    x <<= SHIFTS


SATURATED_INT8 = [1.0, -3, 127, -128, 127, -128, 0, 127]
SATURATED_INT32 = [1.0, -3, 300, LEAST, -LEAST - 1, LEAST, 0, -LEAST - 1]
CASES = {
    "to int8": Case(lambda: FLOATS.to(torch.int8), SATURATED_INT8, 5, OUT_OF_RANGE),
    "int": Case(lambda: FLOATS.int(), SATURATED_INT32, 3, OUT_OF_RANGE),
    "int of float16": Case(lambda: FLOATS[:7].half().int(), [1, -3, 300, LEAST, 9, 9, 9], 3, OUT_OF_RANGE),
    "type": Case(lambda: FLOATS.type(torch.int8), SATURATED_INT8, 5, OUT_OF_RANGE),
    "char of complex": Case(lambda: (FLOATS[:4] + 0j).char(), SATURATED_INT8[:4], 2, OUT_OF_RANGE),
    "copy_ of two rows": Case(_copied(torch.int8), SATURATED_INT8 * 2, 10, OUT_OF_RANGE),
    "type_as": Case(lambda: FLOATS.type_as(torch.zeros(1, dtype=torch.int8)), SATURATED_INT8, 5, OUT_OF_RANGE),
    "__setitem__": Case(_set, [0, *SATURATED_INT8, 0], 5, OUT_OF_RANGE),
    "to float8_e5m2": Case(
        lambda: FLOATS.to(torch.float8_e5m2), [1.5, -3, 320, -57344, 57344, -57344, math.nan, 57344], 4, OUT_OF_RANGE
    ),
    "to float8_e4m3fnuz": Case(lambda: FLOATS[:4].to(torch.float8_e4m3fnuz), [1.5, -3, 240, -240], 2, OUT_OF_RANGE),
    "bitwise_left_shift": Case(lambda: torch.bitwise_left_shift(INTS, SHIFTS), [10, -7, 3, 256], 3, TOO_FAR),
    "__rshift__": Case(lambda: INTS >> SHIFTS, [2, -7, 12, 9], 3, TOO_FAR),
    "__ilshift__": Case(_left, [10, -7, 3, 256], 3, TOO_FAR),
    "floor_divide": Case(_divided("floor_divide"), [-LEAST - 1, -9, LEAST // 2, -5], 1, LEAST_BY_MINUS_ONE),
}


def giving(values: list[float]) -> Callable[[Any, Any, Any], Any]:
    """Return a device whose result holds these values, in its argument where it writes to that."""

    def call(func: Any, args: Any, kwargs: Any) -> Any:
        found = func(*args, **kwargs)
        result: Tensor = args[0] if found is None else found
        result.copy_(torch.tensor(values, dtype=torch.float64).view(result.shape))
        return found

    return call


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", CASES)
def test_a_device_with_other_arithmetic_passes_and_the_open_elements_are_counted(
    tmp_path: Path, check: Any, device_that: Any, name: str
) -> None:
    case = CASES[name]
    found = check(recorded_call(tmp_path, case.program), device=device_that(giving(case.elsewhere))).forward
    assert found.outcome == "pass", found.reason
    assert left_open_of(found.extras) == LeftOpen(case.open, len(case.elsewhere), case.why)


@pytest.mark.parametrize(("name", "last"), [("remainder", 1), ("fmod", -1)])
def test_the_remainder_of_the_least_integer_by_minus_one_is_zero(
    tmp_path: Path, check: Any, device_that: Any, name: str, last: int
) -> None:
    call = recorded_call(tmp_path, _divided(name))
    assert check(call, device=device_that(giving([0, 0, 0, last]))).forward.outcome == "pass"
    assert check(call, device=device_that(giving([77, 0, 0, last]))).forward.outcome == "fail"


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize("name", CASES)
def test_a_defined_element_that_is_wrong_fails_among_open_ones(
    tmp_path: Path, check: Any, device_that: Any, name: str
) -> None:
    case = CASES[name]
    defined = 1 if name == "floor_divide" else 0
    wrong = [value + 1 if i == defined else value for i, value in enumerate(case.elsewhere)]
    found = check(recorded_call(tmp_path, case.program), device=device_that(giving(wrong))).forward
    assert found.outcome == "fail"
    assert f"1 of {len(wrong)} elements wrong" in found.reason
    assert str(left_open_of(found.extras)) in found.notes[0]


@pytest.mark.parametrize("wrong", [3.0, -57344.0, 0.0])
def test_a_float8_beyond_the_largest_number_is_that_number_infinity_or_nan(
    tmp_path: Path, check: Any, device_that: Any, wrong: float
) -> None:
    def judged(values: list[float]) -> str:
        outcome: str = check(call, device=device_that(giving(values))).forward.outcome
        return outcome

    call = recorded_call(tmp_path, lambda: torch.tensor([1.0, 1e6]).to(torch.float8_e5m2))
    assert judged([1.0, 57344.0]) == judged([1.0, math.inf]) == judged([1.0, math.nan]) == "pass"
    assert judged([1.0, wrong]) == "fail"


def test_a_truncated_number_that_the_integer_holds_is_defined(tmp_path: Path, check: Any, device_that: Any) -> None:
    call = recorded_call(tmp_path, lambda: torch.tensor([-0.9, 255.9, 7.0]).to(torch.uint8))
    assert check(call, device=device_that(giving([0, 255, 7]))).forward.extras == {}
    assert check(call, device=device_that(giving([1, 255, 7]))).forward.outcome == "fail"
    assert check(call, device=device_that(giving([0, 0, 7]))).forward.outcome == "fail"


def test_the_greatest_float_below_2_to_63_fits_into_64_bits(tmp_path: Path, check: Any, device_that: Any) -> None:
    largest = 2.0**63 - 1024
    call = recorded_call(tmp_path, lambda: torch.tensor([largest, 2.0**63, -(2.0**63)], dtype=torch.float64).long())
    saturated = [largest, 2.0**63 - 1, -(2.0**63)]

    def other(func: Any, args: Any, kwargs: Any) -> Tensor:
        return torch.tensor([int(largest), 2**63 - 1, -(2**63)])

    found = check(call, device=device_that(other)).forward
    assert (found.outcome, left_open_of(found.extras)) == ("pass", LeftOpen(1, len(saturated), OUT_OF_RANGE))


def test_an_integer_cast_to_fewer_bits_wraps(tmp_path: Path, check: Any, device_that: Any) -> None:
    call = recorded_call(tmp_path, lambda: torch.tensor([300, 5]).to(torch.int8))
    assert check(call).forward.outcome == "pass"
    assert check(call, device=device_that(giving([127, 5]))).forward.outcome == "fail"


def test_a_result_that_is_open_altogether_is_weak_evidence(tmp_path: Path, check: Any, device_that: Any) -> None:
    call = recorded_call(tmp_path, lambda: torch.tensor([300.0, math.nan]).to(torch.int8))
    found = check(call, device=device_that(giving([127, 1]))).forward
    assert found.outcome == "pass"
    assert found.extras["little_judged"] == "all elements of a result are left open: any value is right"
