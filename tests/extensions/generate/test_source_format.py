from __future__ import annotations

import ast
import subprocess
import sys
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_msprobe.extensions.generate.source_format import WIDTH, depth, docstring, flat, lay_out, literal

texts = st.text(st.characters(exclude_categories=())) | st.sampled_from(
    ["'''", '"""', "\\", '\\"', "a\nb", "{x}", "%s", "\\N{DIGIT ONE}", "\u202e", "\ud800", "it's", 'a "b" c']
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(texts, inner, max_size=6),
    max_leaves=20,
)


def evaluated(source: str) -> Any:
    return eval(source, {"__builtins__": {}}, {"inf": inf, "nan": nan})


@given(values)
def test_a_literal_is_the_value_however_it_is_laid_out(value: Any) -> None:
    code = literal(value)
    assert repr(evaluated(flat(code))) == repr(value)
    assert repr(evaluated("\n".join(lay_out(code)))) == repr(value)


@given(values)
def test_a_literal_is_printable_ascii_and_nothing_but_literals(value: Any) -> None:
    source = flat(literal(value))
    assert source.isascii()
    assert source.isprintable()
    names = {node.id for node in ast.walk(ast.parse(source, mode="eval")) if isinstance(node, ast.Name)}
    assert names <= {"inf", "nan"}
    assert not any(isinstance(node, (ast.Call, ast.Attribute)) for node in ast.walk(ast.parse(source)))


@given(texts.filter(lambda text: text.strip()))
def test_a_docstring_is_one_string_whatever_is_in_it(text: str) -> None:
    module = ast.parse(docstring(f"{text}\n"))
    assert len(module.body) == 1
    assert ast.get_docstring(module, clean=False) == "\n".join([*text.split("\n"), ""])


@given(st.lists(st.integers(), max_size=60))
def test_lines_are_as_long_as_they_may_be_and_no_longer(numbers: list[int]) -> None:
    lines = list(lay_out(literal(numbers), "x = "))
    assert all(len(line) <= WIDTH for line in lines)
    assert len(lines) == 1 or len(f"x = {numbers}") > WIDTH


def test_depth_counts_open_brackets() -> None:
    assert [depth(literal(value)) for value in (1, [], [1, [2]], {"a": [[]]})] == [0, 1, 2, 3]


@settings(max_examples=5, deadline=None)
@given(st.lists(values, min_size=20))
def test_ruff_leaves_it_as_it_is(tmp_path_factory: pytest.TempPathFactory, many: list[Any]) -> None:
    source = tmp_path_factory.mktemp("format") / "literals.py"
    source.write_text("".join(f"{line}\n" for value in many for line in lay_out(literal(value), "x = ")))
    command = [sys.executable, "-m", "ruff", "format", "--isolated", f"--line-length={WIDTH}", "--diff", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
