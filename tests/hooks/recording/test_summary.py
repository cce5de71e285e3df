"""The summary of a recording in a notebook."""

from __future__ import annotations

from pathlib import Path

from msprobe_hooks.recording.summary import Summary


def test_a_notebook_shows_each_clause_of_the_text_in_a_paragraph() -> None:
    summary = Summary(calls=2, started=True, raised=1, seconds=1.25, bytes=100, folders=[Path("run")])
    shown = summary._repr_html_().splitlines()
    assert shown[0] == "<p>recorded 2 calls in 1.2 s, 100 bytes, into run</p>"
    assert shown[1:] == ["<p>1 call raised, as noted in the records</p>"]
    assert str(summary) == "; ".join(line[3:-4] for line in shown)


def test_an_empty_recording_says_why_in_a_notebook() -> None:
    assert Summary(started=True)._repr_html_().startswith("<p>nothing was recorded: no supported call ran")


def test_a_notebook_takes_nothing_of_a_failure_as_markup() -> None:
    summary = Summary(calls=1, started=True, failure="<b>disk</b>\x1b\nfull")
    assert summary._repr_html_().splitlines()[0] == "<p>recording stopped: &lt;b&gt;disk&lt;/b&gt;\\x1b\\nfull</p>"


def test_the_numbers_of_a_summary_are_a_row_without_texts_and_lists() -> None:
    summary = Summary(calls=3, modules=1, seconds=0.5, bytes=7, started=True, folders=[Path("run")])
    numbers = summary.numbers()
    assert {name: value for name, value in numbers.items() if value} == {
        "calls": 3,
        "modules": 1,
        "seconds": 0.5,
        "bytes": 7,
    }
    assert {type(value) for value in numbers.values()} == {int, float}
