"""Items of communication."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.items import assert_has_no_function

EXAMPLE = Path(__file__).parents[3] / "examples" / "overflow" / "step0"


def test_items_answer_as_items_without_a_function(pytester: pytest.Pytester) -> None:
    assert_has_no_function(pytester.inline_genitems(f"--msprobe-communication={EXAMPLE}")[0][0])
