"""Parts of messages."""

from __future__ import annotations

from msprobe_hooks.messages import counted, did_you_mean
from pytest_msprobe.errors import unknown


def test_an_unknown_name_suggests_the_known_one_that_is_like_it() -> None:
    assert did_you_mean("grpah", ["show", "graph"]) == "; did you mean 'graph'?"


def test_a_name_that_is_like_none_suggests_nothing() -> None:
    assert did_you_mean(17, ["show", "graph"]) == ""


def test_an_unknown_key_is_quoted_with_all_known_ones() -> None:
    assert unknown("key", "limit", ("rule", "limits")) == (
        "unknown key 'limit'; did you mean 'limits'? known are rule, limits"
    )
    assert unknown("key", None, ("rule", "limits")) == "unknown key None; known are rule, limits"


def test_only_one_is_singular() -> None:
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
