from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_msprobe.errors import KeywordError
from pytest_msprobe.run.keyword_expression import parse_keywords

NAMES = ["Functional.softmax.0.forward", "float32"]


@pytest.mark.parametrize(
    ("expression", "matches"),
    [
        ("softmax", True),
        ("SOFTMAX and forward", True),
        ("not softmax", False),
        ("matmul or float32", True),
        ("matmul or softmax and backward", False),
        ("(matmul or softmax) and not backward", True),
        ("not not softmax", True),
        ("functional.softmax.0.f", True),
        ("nothing", False),
    ],
)
def test_an_expression_matches_names_that_contain_its_words(expression: str, matches: bool) -> None:
    assert parse_keywords(expression)(NAMES) is matches


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("softmax and", "at column 12: expected a word, not or a parenthesis, found the end"),
        ("(softmax", "at column 9: expected a closing parenthesis, found the end"),
        ("softmax matmul", "at column 9: expected and, or, or the end, found 'matmul'"),
        ("or", "at column 1: expected a word, not or a parenthesis, found 'or'"),
        ("a)", r"at column 2: expected and, or, or the end, found '\)'"),
    ],
)
def test_what_is_wrong_with_an_expression_is_said(expression: str, message: str) -> None:
    with pytest.raises(KeywordError, match=message):
        parse_keywords(expression)


expressions = st.recursive(
    st.sampled_from(["softmax", "float32", "backward", "x", "Functional"]),
    lambda inner: (
        inner.map("not {}".format)
        | inner.map("({})".format)
        | st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join)
    ),
)


@given(expressions)
def test_operators_mean_what_they_mean_in_python(expression: str) -> None:
    words = {
        word: any(word.lower() in name.lower() for name in NAMES)
        for word in ("softmax", "float32", "backward", "x", "Functional")
    }
    assert parse_keywords(expression)(NAMES) is eval(expression, {}, words)
