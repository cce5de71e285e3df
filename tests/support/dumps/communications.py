"""Communications as ranks record them, and what is said of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from pytest_msprobe.results.result import DirectionResult
from tests.support.dumps.dump_files import Json, tensor_around, value

Judge: TypeAlias = Callable[..., Mapping[str, DirectionResult]]

X = tensor_around(4, at=1.0)
Y = tensor_around(4, at=2.0)


def call(api: str, args: list[Any], after: list[Any], number: int = 0, **kwargs: Any) -> Json:
    """Return a record of communication; the named arguments are the same after the call."""
    body = {"input_args": args, "input_kwargs": kwargs, "output": [*after, *kwargs.values()]}
    return {f"Distributed.{api}.{number}.forward": body}


def all_reduce(after: Json = Y, number: int = 0, **kwargs: Any) -> Json:
    """Return the record of a sum over all ranks, by default a right one."""
    return call("all_reduce", [X], [after], number, **kwargs)


def broadcast(after: Json = X, given: Json = X, number: int = 0, src: int = 0) -> Json:
    """Return the record of what a root gives to all ranks, by default a right one."""
    return call("broadcast", [given], [after], number, src=value(src))


def failing(results: Mapping[str, DirectionResult]) -> dict[str, str]:
    """Return the reasons of all failures."""
    return {name: each.reason for name, each in results.items() if each.verdict.outcome == "fail"}


def outcomes(results: Mapping[str, DirectionResult]) -> dict[str, str]:
    """Return all outcomes."""
    return {name: each.verdict.outcome for name, each in results.items()}
