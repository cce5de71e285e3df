"""Devices by name, and the card in a command that runs an item again."""

from __future__ import annotations

import pytest

from pytest_msprobe.devices.registry import DeviceChoice, DeviceRegistry, on_card, parse_device
from pytest_msprobe.errors import DeviceError


@pytest.mark.parametrize("words", [["pytest"], ["pytest", "--msprobe-device"]])
def test_a_command_without_a_device_stays_as_it_is(words: list[str]) -> None:
    assert on_card(words, "npu:3") == words


@pytest.mark.parametrize(
    ("asked", "card", "named"),
    [
        ("npu", "npu:0", "npu"),
        ("npu", "npu:3", "npu:3"),
        ("npu:0-7", "npu:0", "npu:0"),
        ("auto", "npu:0", "auto"),
        ("compiled:aot_eager", "compiled:aot_eager:0", "compiled:aot_eager"),
        ("compiled:aot_eager:0-3", "compiled:aot_eager:2", "compiled:aot_eager:2"),
    ],
)
def test_a_command_names_the_card_where_another_could_be_chosen(asked: str, card: str, named: str) -> None:
    assert on_card(["pytest", "--msprobe-device", asked], card)[-1] == named


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("npu", DeviceChoice("npu")),
        ("npu:0,2-3", DeviceChoice("npu", (0, 2, 3))),
        ("compiled", DeviceChoice("compiled")),
        ("compiled:1", DeviceChoice("compiled", (1,))),
        ("compiled:aot_eager", DeviceChoice("compiled:aot_eager")),
        ("compiled:aot_eager:0-1", DeviceChoice("compiled:aot_eager", (0, 1))),
    ],
)
def test_what_follows_a_device_is_cards_and_text_where_it_takes_any(text: str, choice: DeviceChoice) -> None:
    assert parse_device(text, DeviceRegistry()) == choice
    assert parse_device(str(choice), DeviceRegistry()) == choice


@pytest.mark.parametrize("text", ["npu:", "npu:x", "npu:2-1", "cpu:aot_eager", "compiled:"])
def test_cards_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(DeviceError, match="indices are numbers and ranges such as"):
        parse_device(text, DeviceRegistry())


def test_a_device_is_called_by_its_text_and_knows_it() -> None:
    device = DeviceRegistry().get("compiled:aot_eager")
    assert device.name == "compiled:aot_eager"
    assert DeviceRegistry().get("compiled").name == "compiled"


def test_an_unknown_device_is_answered_with_where_one_of_your_own_comes_from() -> None:
    with pytest.raises(DeviceError, match=r"device .mine.; .*; one of your own comes from conftest\.py"):
        DeviceRegistry().get("mine")


def test_a_mistyped_device_is_answered_with_what_was_meant_alone() -> None:
    with pytest.raises(DeviceError, match=r"unknown device 'gpu'; known are .*; for ") as raised:
        DeviceRegistry().get("gpu")
    assert "conftest.py" not in str(raised.value)
