"""The card in a command that runs an item again."""

from __future__ import annotations

import pytest

from pytest_msprobe.devices.registry import on_card


@pytest.mark.parametrize("words", [["pytest"], ["pytest", "--msprobe-device"]])
def test_a_command_without_a_device_stays_as_it_is(words: list[str]) -> None:
    assert on_card(words, "npu:3") == words
