from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.names import ApiName, is_module_name, parse_api_name


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Functional.relu.0.forward", ApiName("Functional", "relu", 0, "forward")),
        ("Torch.linalg.norm.3.backward", ApiName("Torch", "linalg.norm", 3, "backward")),
        ("Aten.add.Tensor.12.forward", ApiName("Aten", "add.Tensor", 12, "forward")),
        ("Tensor.__getitem__.7.forward", ApiName("Tensor", "__getitem__", 7, "forward")),
        (
            "Functional.multi_head_attention_forward.1.backward",
            ApiName("Functional", "multi_head_attention_forward", 1, "backward"),
        ),
    ],
)
def test_an_api_name_is_read_into_its_parts(text: str, parsed: ApiName) -> None:
    assert parse_api_name(text) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "forward",
        "Functional.relu.forward",
        "Functional.relu.x.forward",
        "Functional.relu.0.sideways",
        "relu.0.forward",
    ],
)
def test_a_name_outside_the_grammar_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is not of the form") as caught:
        parse_api_name(text)
    assert repr(text) in str(caught.value)


_segment = st.text(st.characters(categories=("L", "N"), include_characters="_/$ "), min_size=1)


@given(
    type_=_segment,
    api=st.lists(_segment, min_size=1, max_size=3).map(".".join),
    call=st.integers(0, 10**9),
    direction=st.sampled_from(["forward", "backward"]),
)
def test_every_name_reads_back_as_it_was_written(type_: str, api: str, call: int, direction: str) -> None:
    name = ApiName(type_, api, call, direction)  # type: ignore[arg-type]
    assert parse_api_name(str(name)) == name


@pytest.mark.parametrize(
    ("name", "is_module"),
    [
        ("Module.layers.0.fc.Linear.forward.2", True),
        ("Cell.fc.Dense.backward.0", True),
        ("Module.fc.Linear.parameters_grad", True),
        ("Torch.mm.0.forward", False),
    ],
)
def test_module_records_are_told_from_api_records(name: str, is_module: bool) -> None:
    assert is_module_name(name) is is_module
