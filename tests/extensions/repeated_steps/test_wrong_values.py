"""The values of a call that was wrong once: in words, and as a recording."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import msprobe_hooks
from msprobe_hooks.errors import ConfigError
from msprobe_hooks.extensions.repeated_steps.differences import Call, flipped_bit
from msprobe_hooks.extensions.repeated_steps.differing_call import in_other_bits
from msprobe_hooks.extensions.repeated_steps.digests import digest
from tests.support.dumps.bit_flips import FlippedBit
from tests.support.runs import check

DTYPES = {torch.float64: 64, torch.float32: 32, torch.bfloat16: 16, torch.int8: 8}


def flipped(tensor: Tensor, place: int, bit: int) -> Tensor:
    """Return a copy with one bit of one element flipped, by numpy."""
    raw = tensor.view(torch.uint8).numpy().copy()
    raw[place * tensor.element_size() + bit // 8] ^= np.uint8(1 << bit % 8)
    return torch.from_numpy(raw).view(tensor.dtype)


def number(tensor: Tensor) -> int:
    found = digest(tensor)
    assert found is not None
    return int(found)


@given(data=st.data())
def test_digests_say_which_bit_of_an_element_was_flipped(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(list(DTYPES)))
    bit, place = data.draw(st.integers(0, DTYPES[dtype] - 1)), data.draw(st.integers(0, 12))
    right = torch.arange(13).to(dtype)
    wrong = flipped(right, place, bit)
    assert flipped_bit(number(wrong), number(right), right.element_size()) == bit
    assert in_other_bits(wrong, right).startswith(f"1 of 13 elements, first [{place}]: ")
    assert in_other_bits(wrong, right).endswith(f", bit {bit}")


def test_elements_that_are_wrong_in_several_bits_are_counted_and_the_first_is_shown() -> None:
    right = torch.zeros(2, 3)
    wrong = torch.tensor([[0.0, 0.0, 1.5], [0.0, 2.0, 0.0]])
    # 1.5 is 0x3fc00000.
    assert (
        in_other_bits(wrong, right) == "2 of 6 elements, first [0, 2]: 1.5 for 0, bits 22, 23, 24, 25, 26, 27, 28, 29"
    )
    assert in_other_bits(right, right) == ""
    assert flipped_bit(number(wrong), number(right), right.element_size()) is None


def wrong_call(folder: Path, number: int, *, keep_values: bool = False) -> Call:
    """Return the call that is named where one of the third step's two calls of an operator was wrong."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    replay = msprobe_hooks.replay_step(model, every=1, folder=folder, keep_values=keep_values)
    with FlippedBit("tanh", number, bit=29):
        for _ in range(3):
            model.zero_grad()
            replay(lambda: model(torch.ones(2, 4)).sum().backward())
    (found,) = replay.report.differences
    assert found.call is not None
    return found.call


@pytest.mark.parametrize(("number", "keep_values"), [(4, False), (3, True)])
def test_wrong_values_are_recorded_and_a_comparison_shows_them(
    pytester: pytest.Pytester, number: int, keep_values: bool
) -> None:
    call = wrong_call(Path("repeats"), number, keep_values=keep_values)
    assert call.wrong_values.startswith("1 of 8 elements, first [0, 0]: ")
    assert call.wrong_values.endswith(", bit 29")
    compared = check(pytester, f"--msprobe-compare={call.wrong_dump}", f"--msprobe-golden={call.dump}")
    assert compared.wrong == {"Aten.tanh.default.0.forward"}
    assert "worst at [0, 0]" in compared.output
    right = check(pytester, "--msprobe-dump=repeats", "--msprobe-device=cpu")
    assert right.exit_code == 0


def test_wrong_values_of_the_first_pass_are_known_by_their_digests_alone(tmp_path: Path) -> None:
    call = wrong_call(tmp_path, 3)
    assert call.wrong_dump is None
    assert (
        call.wrong_values
        == "wrong values not kept (keep_values=True keeps them): by their digests, bit 29 of one element"
    )
    assert not tmp_path.with_name(f"{tmp_path.name}-wrong").exists()


def test_values_are_kept_of_calls_that_are_seen_only() -> None:
    with pytest.raises(ConfigError, match=r"^keep_values is True; allowed: False with calls=False"):
        msprobe_hooks.replay_step(nn.Linear(1, 1), every=1, keep_values=True, calls=False)


def test_a_call_that_gives_another_shape_each_time_is_reported_and_the_training_goes_on(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    replay = msprobe_hooks.replay_step(model, every=1, folder=tmp_path)
    masks, calls = (torch.ones(4), torch.tensor([1.0, 0.0, 1.0, 1.0])), itertools.count(1)

    def step() -> torch.Tensor:
        # The second pass of the watched step.
        rows = torch.arange(12.0).reshape(4, 3)[masks[next(calls) == 4].nonzero()[:, 0]]
        loss = model(rows).sum()
        loss.backward()
        return loss

    for _ in range(3):
        replay(step)
        model.zero_grad()
    assert "aten.nonzero.default" in str(replay)
    assert "of shape (3, 1) for (4, 1)" in str(replay)
