"""Calls of the gated delta rule: the documentation's examples, smaller."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

from tests.support.cann.example_call import Call

_KEY_HEADS, _VALUE_HEADS, _KEY, _VALUE = 2, 4, 16, 8


def _draw(generator: Generator, *shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.rand(shape, generator=generator).to(dtype)


def _tokens(generator: Generator, count: int) -> dict[str, Tensor]:
    query, key = (
        torch.nn.functional.normalize(torch.rand(count, _KEY_HEADS, _KEY, generator=generator), dim=-1).bfloat16()
        for _ in range(2)
    )
    value = _draw(generator, count, _VALUE_HEADS, _VALUE)
    return {"query": query, "key": key, "value": value}


def _gates(generator: Generator, count: int) -> dict[str, Tensor]:
    g = -_draw(generator, count, _VALUE_HEADS, dtype=torch.float32)
    return {"g": g, "beta": _draw(generator, count, _VALUE_HEADS)}


def _recurrent(lengths: list[int], accepted: list[int] | None, gated: bool = True) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        count = sum(lengths)
        state = _draw(generator, count + 2, _VALUE_HEADS, _VALUE, _KEY)
        options = {
            "actual_seq_lengths": torch.tensor(lengths, dtype=torch.int32),
            "ssm_state_indices": torch.randperm(count + 2, generator=generator)[:count].int(),
            "num_accepted_tokens": None if accepted is None else torch.tensor(accepted, dtype=torch.int32),
            **(_gates(generator, count) if gated else {}),
        }
        return Call((*_tokens(generator, count).values(), state), {"scale": _KEY**-0.5, **options})

    return call


def _chunk(lengths: list[int], whole: bool = True) -> Callable[[Generator], Call]:
    def call(generator: Generator) -> Call:
        count = sum(lengths)
        options = {"actual_seq_lengths": torch.tensor(lengths, dtype=torch.int32), "scale": _KEY**-0.5}
        if whole:
            options["initial_state"] = _draw(generator, len(lengths), _VALUE_HEADS, _VALUE, _KEY)
            options |= _gates(generator, count)
        return Call(tuple(_tokens(generator, count).values()), options)

    return call


EXAMPLES: dict[str, Callable[[Generator], Call]] = {
    "npu_recurrent_gated_delta_rule": _recurrent([3, 3], [1, 2]),
    "npu_recurrent_gated_delta_rule-decode": _recurrent([1, 1, 1], None),
    "npu_recurrent_gated_delta_rule-plain": _recurrent([2, 1], None, gated=False),
    "npu_recurrent_gated_delta_rule_functional": _recurrent([3, 1, 2], [3, 1, 1]),
    "npu_chunk_gated_delta_rule": _chunk([70, 30]),
    "npu_chunk_gated_delta_rule-plain": _chunk([5, 3], whole=False),
}
