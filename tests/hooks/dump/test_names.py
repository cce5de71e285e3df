from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe_hooks.dump.names import (
    ApiName,
    ModuleName,
    backward_of,
    direction_of,
    forward_of,
    is_backward_api,
    is_communication,
    is_forward,
    is_forward_api,
    is_module_name,
    is_parameters_grad,
    parse_api_name,
    shared_record,
    split_called,
    split_direction,
    split_module,
)


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


# An operation, an attribute or a class may have the name of a direction.
_segment = st.text(st.characters(categories=("L", "N"), include_characters="_/$ "), min_size=1) | st.sampled_from(
    ["forward", "backward", "parameters_grad"]
)
_dotted = st.lists(_segment, min_size=1, max_size=3).map(".".join)
_number = st.integers(0, 10**9)
_api_records = st.builds("{}.{}.{}.{}".format, _segment, _dotted, _number, st.sampled_from(["forward", "backward"]))
_module_records = st.builds(
    "{}.{}.{}.{}.{}".format,
    st.sampled_from(["Module", "Cell"]),
    _dotted,
    _segment,
    st.sampled_from(["forward", "backward"]),
    _number,
)


@given(
    type_=_segment,
    api=_dotted,
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
def test_module_records_are_distinguished_from_api_records(name: str, is_module: bool) -> None:
    assert is_module_name(name) is is_module


def test_a_call_s_records_are_distinguished_from_its_name() -> None:
    name = parse_api_name("Torch.linalg.norm.3.backward")
    assert (name.forward, name.backward) == ("Torch.linalg.norm.3.forward", "Torch.linalg.norm.3.backward")


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        ("Torch.linalg.norm.3.forward", "Torch.linalg.norm.3.backward"),
        ("Tensor.backward.0.forward", "Tensor.backward.0.backward"),
        ("Torch.autograd.forward.0.forward", "Torch.autograd.forward.0.backward"),
        ("Module.layers.0.fc.Linear.forward.12", "Module.layers.0.fc.Linear.backward.12"),
        ("Module.backward.Linear.forward.0", "Module.backward.Linear.backward.0"),
        ("Cell.net.Net.forward.0", "Cell.net.Net.backward.0"),
    ],
)
def test_the_records_of_one_call_are_twins(forward: str, backward: str) -> None:
    assert (forward_of(backward), backward_of(forward)) == (forward, backward)


@given(_api_records | _module_records)
def test_a_twin_s_twin_is_the_record_itself(name: str) -> None:
    forward, backward = forward_of(name), backward_of(name)
    assert name in (forward, backward)
    assert (backward_of(forward), forward_of(backward)) == (backward, forward)
    assert (forward_of(forward), backward_of(backward)) == (forward, backward)
    assert [direction_of(forward), direction_of(backward)] == ["forward", "backward"]


def test_numbered_gradients_of_parameters_belong_to_the_call_of_their_number() -> None:
    assert forward_of("Module.fc.Linear.parameters_grad.2") == "Module.fc.Linear.forward.2"


@pytest.mark.parametrize("name", ["", "Torch", "Torch.mm.0.sideways", "Module.fc.Linear.parameters_grad", "Module"])
def test_a_name_that_says_no_call_is_its_own_twin(name: str) -> None:
    assert (forward_of(name), backward_of(name)) == (name, name)


@given(st.text(alphabet="ab0.") | st.text())
def test_any_text_may_be_asked_for_its_twins_and_parts(name: str) -> None:
    for twin_of in (forward_of, backward_of):
        assert twin_of(twin_of(name)) == twin_of(name)
    assert "".join(split_called(name)) == name
    assert direction_of(name) in ("forward", "backward", "parameters_grad", "")
    split_module(name)


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("Torch.mm.0.forward", "forward"),
        ("Tensor.forward.0.backward", "backward"),
        ("Module.backward.Linear.forward.0", "forward"),
        ("Module.fc.Linear.backward.3", "backward"),
        ("Module.fc.Linear.parameters_grad", "parameters_grad"),
        ("Module.fc.Linear.parameters_grad.0", "parameters_grad"),
        ("optimizer", ""),
        ("Torch.mm.0", ""),
    ],
)
def test_a_record_says_what_it_is_about(name: str, direction: str) -> None:
    assert direction_of(name) == direction
    assert is_forward(name) is (direction == "forward")


@pytest.mark.parametrize("name", ["Module.fc.Linear.parameters_grad", "Cell.fc.Dense.parameters_grad.4"])
def test_gradients_of_parameters_are_reported_with_and_without_a_number(name: str) -> None:
    assert is_parameters_grad(name)


@pytest.mark.parametrize("name", ["Torch.parameters_grad.0.forward", "Module.parameters_grad.Linear.forward.0"])
def test_what_is_only_called_parameters_grad_holds_none(name: str) -> None:
    assert not is_parameters_grad(name)


def test_the_directions_of_apis_are_distinguished_from_those_of_modules() -> None:
    assert is_forward_api("Torch.mm.0.forward")
    assert is_backward_api("Torch.mm.0.backward")
    assert not is_forward_api("Module.fc.Linear.forward.0")
    assert not is_backward_api("Module.fc.Linear.backward.0")


@given(_api_records)
def test_an_api_record_splits_into_its_call_and_its_direction(name: str) -> None:
    parsed = parse_api_name(name)
    assert split_direction(name) == (parsed.key, parsed.direction)


@pytest.mark.parametrize("name", ["Module.fc.Linear.forward.0", "optimizer", "Module.fc.Linear.parameters_grad"])
def test_what_is_no_api_record_stays_whole(name: str) -> None:
    assert split_direction(name) == (name, "")


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("Torch.linalg.norm.3.forward", "Torch.linalg.norm"),
        ("Module.layers.0.fc.Linear.backward.2", "Module.layers.0.fc.Linear"),
        ("Module.fc.Linear.parameters_grad", "Module.fc.Linear"),
        ("Module.fc.Linear.parameters_grad.0", "Module.fc.Linear"),
    ],
)
def test_what_was_called_is_the_name_without_number_and_direction(name: str, called: str) -> None:
    assert split_called(name) == (called, name.removeprefix(called))


def test_a_module_s_name_is_split_into_path_and_class() -> None:
    assert split_module("Module.layers.0.fc.Linear.forward.2") == ModuleName(
        "Module", "layers.0.fc", "Linear", ".forward.2"
    )
    assert split_module("Cell.Net.parameters_grad") == ModuleName("Cell", "", "Net", ".parameters_grad")


@given(_module_records)
def test_every_module_s_name_reads_back_as_it_was_written(name: str) -> None:
    assert str(split_module(name)) == name


def test_records_of_one_operation_share_a_name_whatever_its_spelling() -> None:
    assert (
        shared_record("Tensor.__add__.3.backward") == shared_record("Tensor.add.3.backward") == "Tensor.add.3.backward"
    )
    assert shared_record("Module.fc.Linear.parameters_grad") == "Module.fc.Linear.parameters_grad"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("Distributed.all_reduce.0.forward", True),
        ("MintDistributed.all_reduce.0.forward", True),
        ("Distributed.all_reduce.0.backward", False),
        ("Torch.mm.0.forward", False),
    ],
)
def test_communication_is_reported_by_name(name: str, is_one: bool) -> None:
    assert is_communication(name) is is_one
