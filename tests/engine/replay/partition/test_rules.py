"""A convolution computed block by block gives what it gives as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards import Policy
from pytest_msprobe.devices.cpu import CpuDevice
from pytest_msprobe.engine.replay.calls.arguments import Arguments, Subject
from pytest_msprobe.engine.replay.check import Replay
from pytest_msprobe.engine.replay.partition import cuts_of
from pytest_msprobe.engine.replay.trials.config import ReplayConfig
from pytest_msprobe.engine.replay.trials.memory_budget import needed_bytes
from pytest_msprobe.engine.replay.trials.trial import Trial
from pytest_msprobe.engine.torch_framework import TorchFramework
from tests.engine.replay.blockwise.whole import assert_blocks_are_the_whole
from tests.support.dumps.recorder import Recorder
from tests.support.replays.devices import Faulty


def trial_of(operation: str, tensors: list[torch.Tensor], options: dict[str, Any]) -> Trial:
    function = getattr(torch.nn.functional, operation)
    arguments = Arguments(tuple(tensors), options, frozenset(f"args.{i}" for i in range(len(tensors))))

    def arriving(output: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"": torch.sin(torch.arange(output.numel()).reshape(output.shape)).to(output.dtype)}

    return Trial(Subject(f"Functional.{operation}.0", operation, function, function, arguments, arriving), CpuDevice())


@pytest.fixture(scope="module")
def without_onednn() -> Iterator[None]:
    """Compute without oneDNN, whose bfloat16 convolutions with AMX crash where padding is wide and images are small."""
    former = torch.backends.mkldnn.set_flags(_enabled=False)
    yield
    torch.backends.mkldnn.set_flags(*former[:2])


@pytest.mark.usefixtures("without_onednn")
@given(st.data(), st.integers(1, 3), st.booleans(), st.sampled_from([torch.float32, torch.bfloat16]), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_blocks_of_a_convolution_are_the_whole_whatever_its_windows(
    data: st.DataObject, dimensions: int, transposed: bool, dtype: torch.dtype, size: int
) -> None:
    def each(low: int, high: int) -> list[int]:
        return data.draw(st.lists(st.integers(low, high), min_size=dimensions, max_size=dimensions))

    sides, kernel, groups = each(1, 6), each(1, 4), data.draw(st.integers(1, 3))
    options: dict[str, Any] = {"stride": each(1, 4), "padding": each(0, 3), "dilation": each(1, 3), "groups": groups}
    features, image = groups * data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    if transposed:
        options["output_padding"] = each(0, 2)
    channels = (features, image * groups) if transposed else (image * groups, features)
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**20)))
    shapes = [(data.draw(st.integers(1, 4)), channels[0], *sides), (features, image, *kernel), (channels[1],)]
    tensors = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    operation = f"conv_transpose{dimensions}d" if transposed else f"conv{dimensions}d"
    try:
        expected = getattr(torch.nn.functional, operation)(*(tensor.double() for tensor in tensors), **options)
    except RuntimeError:
        assert not cuts_of(operation, Arguments(tuple(tensors), options, frozenset()))
        return
    if expected.numel():
        trial = trial_of(operation, tensors, options)
        cuts = cuts_of(operation, trial.subject.arguments)
        assert [cut.dim for cut in cuts] == ([0, 1] if groups == 1 else [0])
        assert {cut.shape for cut in cuts} == {tuple(expected.shape)}
        assert_blocks_are_the_whole(trial, size)


def test_a_padding_may_be_a_word() -> None:
    tensors = [torch.randn(3, 4, 9), torch.randn(5, 4, 3), torch.randn(5)]
    assert_blocks_are_the_whole(trial_of("conv1d", tensors, {"padding": "same", "dilation": 2}), 2)


@pytest.mark.parametrize(
    ("shapes", "options"),
    [([(4, 9), (5, 4, 3)], {}), ([(3, 4, 9), (5, 4, 3)], {"padding_mode": "zeros"}), ([(3, 4, 9), (5, 3, 3)], {})],
    ids=["without a batch", "an argument that is not known", "channels that do not fit"],
)
def test_other_convolutions_are_not_cut(shapes: list[tuple[int, ...]], options: dict[str, Any]) -> None:
    assert not cuts_of("conv1d", Arguments(tuple(map(torch.empty, shapes)), options, frozenset()))


def test_what_fails_asks_for_its_windows_before_golden_is_computed_as_a_whole(
    recorder: Recorder, default_policy: Policy
) -> None:
    call = recorder.Functional.conv2d(torch.randn(9, 4, 12, 15), torch.randn(6, 4, 3, 3), padding=1)
    admitted: list[int] = []
    device = Faulty(lambda result: result * 2)
    setup = ReplayConfig(
        device, default_policy, TorchFramework(), raised_above=0, admit=lambda needed, _: admitted.append(needed)
    )
    assert Replay(call, setup).forward().outcome == "fail"
    in_blocks, more = admitted
    assert in_blocks + more == needed_bytes(call) + 9 * 12 * 15 * 4 * 9 * torch.float64.itemsize
