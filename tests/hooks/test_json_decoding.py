from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe_hooks.json_decoding import JsonDepthError, JsonError, JsonFormError, cut_to_depth, decode_json

TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda tree: st.lists(tree) | st.dictionaries(st.text(st.characters(codec="utf-8")), tree),
)
few = settings(max_examples=30)


@few
@given(TREES, st.booleans())
def test_what_pythons_json_writes_is_read_as_it_was(tree: Any, ascii_only: bool) -> None:
    assert decode_json(json.dumps(tree, ensure_ascii=ascii_only).encode()) == tree


@few
@given(st.text())
def test_no_text_that_is_read_has_half_of_a_surrogate_pair(text: str) -> None:
    read = decode_json(json.dumps([text + "\ud800", math.nan]).encode())
    assert read[0].encode().endswith(rb"\ud800")
    assert read[1] == "NaN"


@few
@given(TREES)
def test_a_tree_that_is_not_deep_is_not_cut(tree: Any) -> None:
    text = json.dumps(tree).encode()
    assert cut_to_depth(text, 100) == text


@few
@given(TREES, st.integers(0, 4))
def test_what_is_cut_has_null_in_place_of_what_was_deeper(tree: Any, levels: int) -> None:
    assert decode_json(cut_to_depth(json.dumps(tree).encode(), levels)) == _cut(tree, levels)


def _cut(tree: Any, levels: int) -> Any:
    if not isinstance(tree, (list, dict)):
        return tree
    if levels == 0:
        return None
    if isinstance(tree, list):
        return [_cut(item, levels - 1) for item in tree]
    return {key: _cut(item, levels - 1) for key, item in tree.items()}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", "the JSON ends too early"),
        (b'{"a": [1', "the JSON ends too early"),
        (b'{\n"a": oops}', "not valid JSON at line 2: JSON is malformed"),
        (b'"\xff"', "not UTF-8 text"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b"1" * 5000, "Integer value out of range"),
    ],
    ids=str,
)
def test_what_cannot_be_decoded_is_one_error_that_says_why(text: bytes, problem: str) -> None:
    with pytest.raises(JsonError, match=problem) as caught:
        decode_json(text)
    assert isinstance(caught.value, JsonDepthError) == (problem == "nested too deeply")


def test_what_is_not_of_the_asked_form_is_distinguished_from_what_is_no_json() -> None:
    with pytest.raises(JsonFormError, match="Expected `int`, got `str`"):
        decode_json(b'["a"]', list[int])


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 500_000, b"[" * 1_000_000, b'["\\ud800' + b"\\\\" * 500_000], ids=len)
def test_a_text_of_a_megabyte_is_refused_at_once(text: bytes) -> None:
    started = time.process_time()
    with pytest.raises(JsonError):
        decode_json(cut_to_depth(text, 100))
    assert time.process_time() - started < 5
