"""The text of an error that others raise."""

from __future__ import annotations

from pytest_msprobe.results.outcomes import describe_error


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise SystemExit("never")

    __repr__ = __str__


def test_a_description_names_the_kind_and_is_short() -> None:
    text = describe_error(
        RuntimeError("first line\nException raised from f at x.cpp:1 (most recent call first):\nframe")
    )
    assert text == "RuntimeError: first line"
    assert describe_error(ValueError()) == "ValueError"
    assert len(describe_error(ValueError("x" * 5000))) < 500


def test_an_error_whose_text_cannot_be_made_is_still_named() -> None:
    assert describe_error(UnspeakableError()) == "UnspeakableError: (its text cannot be made: SystemExit)"


def test_a_description_can_be_written_as_utf8() -> None:
    assert describe_error(ValueError("\ud800 bad")).encode() == b"ValueError: \\ud800 bad"
