"""Embeddings that are judged by the rows that they read of a large table, or left to the check of the whole table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.devices.sim import SimDevice
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.inputs import large_tensors
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.torch_framework import TorchFramework
from pytest_msprobe.extensions.screening.screen_trial import rows_of
from pytest_msprobe.results.result import LITTLE_JUDGED, NARROW_SUMS
from tests.corpus.correct_devices import CORRECT_DEVICES
from tests.corpus.fault import Variant, VariantDevice
from tests.corpus.faults import FAULTS
from tests.support.dumps.recorder import Recorder

ROWS, WIDTH = 2**10, 64
DIRECTIONS = ("forward", "backward")
POLICY = Policy.load("default")


@pytest.fixture(autouse=True, scope="module")
def tables_are_large() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(large_tensors, "LARGE", ROWS * WIDTH)
    yield
    patch.undo()


def table(dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(ROWS, WIDTH).to(dtype).requires_grad_()


def some(low: int, high: int, count: int = 40, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    index = torch.randint(low, high, (2, count // 2), dtype=dtype)
    index[0, 0], index[-1, -1] = low, high - 1
    return index


CALLS: dict[str, Callable[[Any], Any]] = {
    "few rows that are read once": lambda of: of.Functional.embedding(some(7, ROWS), table()),
    "rows that are read often": lambda of: of.Functional.embedding(some(7, 12), table()),
    "float32": lambda of: of.Functional.embedding(some(7, 12), table(torch.float32)),
    "float16 by keywords": lambda of: of.Functional.embedding(input=some(7, 12), weight=table(torch.float16)),
    "float64": lambda of: of.Functional.embedding(some(7, 12), table(torch.float64)),
    "a row without gradient": lambda of: of.Functional.embedding(some(7, 12), table(), 9),
    "a row without gradient that is not read": lambda of: of.Functional.embedding(some(7, 12), table(), 99),
    "the last row without gradient": lambda of: of.Functional.embedding(some(ROWS - 5, ROWS), table(), padding_idx=-1),
    "gradients by frequency": lambda of: of.Functional.embedding(
        some(7, 12), table(torch.float32), None, None, 2.0, True, False
    ),
    "32 bit indices": lambda of: of.Functional.embedding(some(7, 12, dtype=torch.int32), table()),
}


def replayed(call: Any, device: Any = None, above: float | None = 1e10) -> Replay:
    return Replay(call, ReplayConfig(device or CpuDevice(), POLICY, TorchFramework(), screen_above=above))


def ran_whole(replay: Replay) -> bool:
    return "golden" in vars(replay.trial)


def without_narrow_sums(extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return extras without the note on sums in 16 bits, which torch's CPU makes: only what is judged whole has it."""
    kept = {name: value for name, value in extras.items() if name not in (NARROW_SUMS, "properties")}
    properties = {name: text for name, text in extras.get("properties", {}).items() if name != NARROW_SUMS}
    return kept | ({"properties": properties} if properties else {})


def test_a_gradient_whose_rows_cancel_is_not_wrong_for_the_rows_that_are_not_read(recorder: Recorder) -> None:
    """Three of a row add up in two roundings; by the mean of a gradient of zeros that was many unit roundoffs."""
    torch.manual_seed(0)
    index = torch.arange(3).repeat(3)
    backward = replayed(recorder.Functional.embedding(index, table()), above=None).judge("backward")
    assert (backward.outcome, without_narrow_sums(backward.extras)) == ("pass", {})
    assert backward.verdict.metrics["max_scaled_error"] < 4


@pytest.mark.parametrize("name", CALLS)
def test_numbers_of_the_rows_that_are_read_are_those_of_the_whole_table(recorder: Recorder, name: str) -> None:
    call = CALLS[name](recorder)
    few, whole = replayed(call), replayed(call, above=None)
    for direction in DIRECTIONS:
        found, expected = few.judge(direction), whole.judge(direction)
        assert (found.outcome, found.verdict.reason) == (expected.outcome, expected.verdict.reason)
        assert without_narrow_sums(found.extras) == without_narrow_sums(expected.extras)
        assert [(o.path, o.shape, o.target_dtype, o.golden_dtype) for o in found.outputs] == [
            (o.path, o.shape, o.target_dtype, o.golden_dtype) for o in expected.outputs
        ]
        assert found.verdict.metrics == pytest.approx(expected.verdict.metrics, rel=1e-9)
        assert found.verdict.limits == pytest.approx(expected.verdict.limits, rel=1e-9)
    assert ran_whole(whole)
    # Where the device is the CPU itself, a gradient that its 16-bit kernel adds up is decided by the whole table.
    assert ran_whole(few) is (LITTLE_JUDGED in expected.extras)


LEFT_ALONE: dict[str, Callable[[Any], Any]] = {
    "rows that are scaled": lambda of: of.Functional.embedding(some(7, 12), table().detach(), max_norm=1.0),
    "a sparse gradient": lambda of: of.Functional.embedding(some(7, 12), table(torch.float32), sparse=True),
    "many rows": lambda of: of.Functional.embedding(some(0, ROWS, ROWS), table()),
    "a small table": lambda of: of.Functional.embedding(some(0, 9), torch.randn(ROWS // 2, WIDTH)),
    "another order of arguments": lambda of: of.Torch.embedding(table(), some(7, 12)),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_other_calls_are_checked_as_a_whole(recorder: Recorder, name: str) -> None:
    replay = replayed(LEFT_ALONE[name](recorder))
    assert replay.forward().outcome == "pass"
    assert ran_whole(replay)


@pytest.mark.parametrize(
    "variant", [each for each in (*FAULTS, *CORRECT_DEVICES) if each.touches("embedding")], ids=lambda each: each.name
)
@pytest.mark.parametrize("name", ["few rows that are read once", "float32"])
def test_verdicts_are_those_of_the_whole_table(recorder: Recorder, name: str, variant: Variant) -> None:
    call = CALLS[name](recorder)
    few, whole = (replayed(call, VariantDevice(variant), above) for above in (1e10, None))
    for direction in DIRECTIONS:
        found, expected = few.judge(direction), whole.judge(direction)
        assert (found.outcome, found.verdict.reason) == (expected.outcome, expected.verdict.reason)


class Touched(SimDevice):
    """Writes a value to one element of the gradient of a table."""

    def __init__(self, place: int, value: float) -> None:
        self._place, self._value = place, value

    def call(self, func: Any, args: Any, kwargs: Any, *, record: str) -> Any:
        found = func(*args, **kwargs)
        if record.endswith(".backward"):
            found[0].view(-1)[self._place] = self._value
        return found


@settings(max_examples=15)
@given(st.integers(0, ROWS * WIDTH - 1), st.sampled_from([3e-38, -1e-3, 7.5, float("nan"), float("inf")]))
def test_nothing_anywhere_in_the_gradient_is_overlooked(place: int, value: float) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        call = CALLS["float32"](Recorder())
    few, whole = (replayed(call, Touched(place, value), above) for above in (1e10, None))
    assert few.backward().verdict == whole.backward().verdict
    assert ran_whole(few)


def test_a_negative_zero_next_to_the_rows_is_left_to_the_whole_check(recorder: Recorder) -> None:
    replay = replayed(CALLS["few rows that are read once"](recorder), Touched(0, -0.0))
    assert replay.backward().outcome == "pass"
    assert ran_whole(replay)


def test_an_index_beyond_the_table_is_no_reading_of_rows(recorder: Recorder) -> None:
    call = CALLS["few rows that are read once"](recorder)
    arguments = replayed(call).trial.subject.arguments
    assert rows_of("embedding", arguments) is not None
    arguments.args[0][0, 0] = ROWS
    assert rows_of("embedding", arguments) is None
