from __future__ import annotations

import time
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_standards.decoding import YamlError, compose_yaml, decode_yaml
from msprobe_standards.validation import shown

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("abc: -{}[]&*!#'\"\n"),
    lambda tree: st.lists(tree, max_size=3) | st.dictionaries(st.text("abc"), tree, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(TREES)
def test_what_yaml_writes_is_read_as_it_was(tree: Any) -> None:
    assert decode_yaml(yaml.safe_dump(tree).encode()) == tree


def test_an_empty_text_has_no_value() -> None:
    assert (decode_yaml(b""), compose_yaml(b"# nothing\n")) == (None, None)


def test_aliases_and_merged_mappings_are_understood() -> None:
    text = b"a: &names [x, y]\nb: *names\nc: &base {n: 1, m: 2}\nd: {<<: *base, m: 3}\n"
    assert decode_yaml(text) == {"a": ["x", "y"], "b": ["x", "y"], "c": {"n": 1, "m": 2}, "d": {"n": 1, "m": 3}}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"a:\n- [1, }", "not valid YAML at line 2"),
        (b"a: 1\nb: !!int x", "not valid YAML at line 2: not a value of int: invalid literal"),
        (b"a: " + b"1" * 5000, "not valid YAML at line 1: not a value of int"),
        (b"a: 2024-13-01", "not valid YAML at line 1: not a value of timestamp: month"),
        (b"!!timestamp x", "not a value of timestamp"),
        (b"!!bool x", "not a value of bool"),
        (b"{[1]: 2}", "unhashable key"),
        (b"!!python/object:os.system x", "could not determine a constructor"),
        (b'"\xff"', "not UTF-8 text"),
        (b"a: \x00", "control characters"),
        (b"*a", "undefined alias"),
        (b"[" * 60 + b"]" * 60, "nested deeper than 50 levels"),
        (b"[" * 100_000, "nested too deeply"),
        (b"- " * 100_000, "nested too deeply"),
        (b"&a [*a]", "nested deeper than 50 levels"),
        (b"? &a [*a]\n: 1", "nested deeper than 50 levels"),
        (b"!" + b"x" * 100_000 + b" 1", "could not determine a constructor"),
    ],
    ids=lambda value: value[:20] if isinstance(value, bytes) else "",
)
def test_what_cannot_be_decoded_is_one_short_error_that_says_why(text: bytes, problem: str) -> None:
    with pytest.raises(YamlError, match=problem) as caught:
        decode_yaml(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("levels", [8, 20])
def test_aliases_that_stand_for_gigabytes_are_refused_at_once(levels: int) -> None:
    lines = ["- &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"- &a{i + 1} [{', '.join([f'*a{i}'] * 8)}]" for i in range(levels)]
    started = time.process_time()
    with pytest.raises(YamlError, match="aliases repeat its content too often"):
        decode_yaml("\n".join(lines).encode())
    assert time.process_time() - started < 1


@pytest.mark.parametrize("value", [["x" * 1000], "x" * 1000, [16**5000], {"a\n": [["b"]] * 1000}])
def test_a_long_value_is_shown_short(value: Any) -> None:
    assert len(shown(value)) < 250
    assert "\n" not in shown(value)


def test_a_short_value_is_shown_whole() -> None:
    assert shown(["a", 1.5]) == "['a', 1.5]"
