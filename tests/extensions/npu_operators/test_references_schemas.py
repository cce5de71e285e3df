"""Golden definitions take what the schemas of torch_npu's operators name, and return as much."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from msprobe_hooks.extensions.npu_operators.operators import RECORDED
from pytest_msprobe.engine.replay.ops.op_info import op_info
from pytest_msprobe.engine.replay.references import ReferenceRegistry
from pytest_msprobe.extensions.npu_operators.left_out import LEFT_OUT, left_out
from tests.support.npu.torch_npu_operators import Operator, name_of, read_extract

OPERATORS = read_extract()
# Arguments that are none of the operator's: the kernel by which fused attention is computed; how Python passes the
# tensors that an overload ``out`` writes.
OWN = frozenset({"attend", "out"})
# Arguments that were named otherwise, and are passed by their place.
_RENAMED = {"npu_mhc_post_backward": {"grad_output"}}
# Memory that an overload ``out`` works in.
_OF_OUT = frozenset({"workspace"})
REFERENCES = ReferenceRegistry()
REASONS = dict(left_out())
DEFINED = sorted({name.partition(".")[2] for name in REFERENCES.names()})
# Those of other libraries, such as ATB, have no schema there.
WITH_SCHEMA = [name for name in DEFINED if name in OPERATORS]


def reference(name: str) -> Callable[..., Any]:
    found = REFERENCES.get(f"NPU.{name}") or REFERENCES.get(f"Aten.{name}")
    assert found is not None
    return found


@pytest.mark.parametrize("name", WITH_SCHEMA)
def test_a_golden_definition_takes_the_arguments_of_every_overload(name: str) -> None:
    assert differences(reference(name), OPERATORS[name]) == []


@pytest.mark.parametrize("name", WITH_SCHEMA)
def test_a_golden_definition_takes_the_arguments_of_earlier_versions(name: str) -> None:
    known = inspect.signature(reference(name)).parameters
    earlier = [_parse(schema) for schema in OPERATORS[name].earlier]
    arguments = [argument.name for schema in earlier for argument in schema.arguments if not argument.is_out]
    assert [each for each in arguments if each not in {*known, *_OF_OUT, *_RENAMED.get(name, ())}] == []


@pytest.mark.parametrize("name", WITH_SCHEMA)
def test_the_positions_of_arguments_are_those_of_earlier_versions(name: str) -> None:
    order = list(inspect.signature(reference(name)).parameters)
    for schema in OPERATORS[name].earlier:
        positional = [each.name for each in _parse(schema).arguments if not each.kwarg_only and each.name in order]
        assert positional == [each for each in order if each in positional]


def test_each_operator_has_a_golden_definition_a_required_property_or_a_reason() -> None:
    names = {*OPERATORS, *RECORDED}
    assert sorted(name for name in names if not accounts(name)) == []


def test_no_operator_has_both_a_golden_definition_and_a_reason_to_be_left_out() -> None:
    assert sorted(name for name in DEFINED if name in REASONS) == []


def test_each_reason_is_of_an_operator_that_torch_npu_has_or_records() -> None:
    assert sorted({name for names in LEFT_OUT.values() for name in names} - {*OPERATORS, *RECORDED}) == []


def accounts(name: str) -> bool:
    """Return whether it is known what is done with an operator."""
    return name in DEFINED or op_info(name).random is not None or name in REASONS


def differences(function: Callable[..., Any], operator: Operator) -> list[str]:
    """Return what differs between a function's signature and its operator's schemas, in a line each."""
    found = [line for schema in operator.schemas for line in _unlike(inspect.signature(function), schema)]
    schemas = [*operator.schemas, *operator.earlier]
    known = {argument.name for schema in schemas for argument in _parse(schema).arguments}
    extra = [f"{name_of(operator.schemas[0])} has no argument {each}" for each in _own(function) if each not in known]
    return found + extra


def _parse(schema: str) -> torch.FunctionSchema:
    # What names a dimension is gone from torch.
    return torch._C.parse_schema(schema.replace("Dimname", "str"))


def _own(function: Callable[..., Any]) -> Iterator[str]:
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}:
            yield f"**{parameter.name}"
        elif parameter.name not in OWN:
            yield parameter.name


def _unlike(signature: inspect.Signature, text: str) -> Iterator[str]:
    schema = _parse(text)
    label = text.partition("(")[0]
    ours = signature.parameters
    wanted = [argument for argument in schema.arguments if not argument.is_out]
    places = [each for each in ours.values() if each.kind is not inspect.Parameter.KEYWORD_ONLY]
    for place, argument in enumerate(wanted):
        if argument.name in _OF_OUT:
            continue
        if argument.name not in ours:
            yield f"{label}: argument {argument.name} is missing"
        elif not argument.kwarg_only and place >= len(places):
            yield f"{label}: argument {argument.name} may be passed by position"
        elif not _same_default(ours[argument.name].default, argument):
            yield f"{label}: {argument.name} is {argument.default_value!r} by default"
    positional = [each.name for each in wanted if not each.kwarg_only and each.name in signature.parameters]
    if positional != [name for name in ours if name in positional]:
        yield f"{label}: the order is {', '.join(positional)}"
    results = _result_count(str(signature.return_annotation))
    if schema.returns and results is not None and len(schema.returns) != results:
        yield f"{label} returns {len(schema.returns)} results, the definition {results}"


def _result_count(annotation: str) -> int | None:
    """Return how many results an annotation declares; None for a name of a tuple, or a tuple of any length."""
    declared = ast.parse(annotation, mode="eval").body
    if not isinstance(declared, ast.Subscript):
        return 1 if annotation in {"Tensor", "Tensor | None", "int"} else None
    parts = declared.slice.elts if isinstance(declared.slice, ast.Tuple) else [declared.slice]
    is_open = any(isinstance(part, ast.Constant) and part.value is ... for part in parts)
    return None if is_open or ast.unparse(declared.value) != "tuple" else len(parts)


def _same_default(ours: Any, argument: Any) -> bool:
    if not argument.has_default_value():
        return True
    theirs = argument.default_value
    if isinstance(theirs, list):
        return theirs == (list(ours) if isinstance(ours, list | tuple) else [ours] * len(theirs))
    return ours is not inspect.Parameter.empty and (ours == theirs or str(ours) == str(theirs))
